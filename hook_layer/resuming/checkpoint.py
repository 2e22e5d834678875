"""Resumes an interrupted training (e.g. on spot instances) at the step of its last checkpoint.

When a checkpoint appears in the checkpoint directory, the step counters are written to the state
file beside it (`hook_layer.resuming.checkpoint_state`). A training that finds a state file
continues with the next step. It continues the same run, unless that has ended: steps after the
checkpoint are stored again under the same names and numbers.

Limit: a checkpoint that was saved just before the process was killed, without a later step or
SIGTERM, is not in the state file. Then the step numbers are too low, which is logged.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Final, NamedTuple

from hook_layer.configuration.job import CheckpointConfig
from hook_layer.format.job_file import new_run_id
from hook_layer.resuming.checkpoint_files import CheckpointFiles, FileMark, open_inodes
from hook_layer.resuming.checkpoint_state import SavedRun, SavedState
from hook_layer.resuming.state_file import StateFile

__all__ = ["CheckpointKeeper", "Progress", "RunStart"]

logger = logging.getLogger("stepwatch")

_MAX_STATES: Final = 50
_MAX_FILES_OF_A_STATE: Final = 16
_LONGEST_PAUSE: Final = 64
"""Maximum number of checks between two reads of the process's open files."""


@dataclass(frozen=True)
class RunStart:
    """Start of a new or continued run; rank 0 decides it for all workers.

    Attributes:
        run_id: Id of the run.
        started_at: Start of the run, ISO 8601 in UTC.
        step: Last global step whose training is complete; -1 before the first.
        mode_steps: The same for each mode, by the mode's name.
        saved_step: Last global step that was saved in this run by then; -1 before the first.
        sequence: Number of the index file of that step, of rank 0; 0 before the first.
        training_run: Number of times that the training was resumed.
        is_refused: Whether nothing may be saved, because the session watches no further run.
        root: URI of the trial's root, if it differs from the hook's.
        writers: The ranks that write.
    """

    run_id: str
    started_at: str = ""
    step: int = -1
    mode_steps: Mapping[str, int] = field(default_factory=dict)
    saved_step: int = -1
    sequence: int = 0
    training_run: int = 0
    is_refused: bool = False
    root: str = ""
    writers: Sequence[int] = (0,)

    @classmethod
    def new(cls) -> RunStart:
        """Return the start of a new run."""
        return cls(new_run_id(), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))

    def to_json(self) -> str:
        """Return the start as JSON, for the other workers of the same program."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> RunStart:
        """Parse the result of `to_json`."""
        start = cls(**json.loads(text))
        return replace(start, writers=tuple(start.writers))


class Progress(NamedTuple):
    """Progress of a training.

    Attributes:
        step: Last global step.
        saved_step: Last saved global step.
        mode_steps: Last step of each mode, by the mode's name.
        sequence: Number of the last index file.
    """

    step: int
    saved_step: int
    mode_steps: dict[str, int]
    sequence: int


class CheckpointKeeper:
    """Maintains the state file of a checkpoint directory.

    Attributes:
        file: The state file.
    """

    def __init__(
        self,
        config: CheckpointConfig,
        job_name: str,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.file = StateFile(config, clock=clock)
        self._job_name = job_name
        self._files = CheckpointFiles(str(config.local_path), clock=clock)
        self._states: list[SavedState] = []
        self._run = SavedRun("", job_name, "", 0)
        self._training_run = 0
        self._being_written: dict[int, Progress] = {}
        self._looks_to_pass = self._pause = 0

    # The start -----------------------------------------------------------------------------------

    def start(self, is_same_run: Callable[[SavedRun], bool]) -> RunStart:
        """Return where training continues according to the state file, or the start of a new run.

        Never raises for invalid content of the file or an unreachable store.

        Args:
            is_same_run: Returns whether the run of a state that has not ended can continue.
        """
        states = self.file.read()
        start = RunStart.new()
        at = self._choose(states)
        if at is not None:
            start = self._resume(states[at], is_same_run, start)
        self._run = SavedRun(start.run_id, self._job_name, start.started_at, 0)
        self._training_run = start.training_run
        if at is not None:
            # Counts this resumption even if the process ends before a checkpoint.
            begun = replace(
                states[at],
                training_run=start.training_run,
                saved_step=start.saved_step,
                run=replace(self._run, sequence=start.sequence),
            )
            self._states = [*states[: at + 1], begun]
            self.file.write(self._states)
        return start

    def _choose(self, states: list[SavedState]) -> int | None:
        """Return the index of the newest state whose files all exist, or of the newest state."""
        sizes = self._files.sizes
        for at in range(len(states) - 1, -1, -1):
            files = states[at].files
            if all(sizes.get(name) == size for name, size in files.items()):
                return at
        return len(states) - 1 if states else None

    def _resume(
        self, state: SavedState, is_same_run: Callable[[SavedRun], bool], new: RunStart
    ) -> RunStart:
        run = state.run
        goes_on = run is not None and not run.has_ended and is_same_run(run)
        start = replace(
            new,
            step=state.step,
            mode_steps=dict(state.mode_steps),
            training_run=state.training_run + 1,
        )
        if run is not None and goes_on:
            start = replace(
                start,
                run_id=run.run_id,
                started_at=run.started_at,
                saved_step=state.saved_step,
                sequence=run.sequence,
            )
        logger.warning(
            "training continues after step %d, according to %s (resumed %d times, %s)",
            start.step,
            self.file.name,
            start.training_run,
            "in the same run" if goes_on else "as a new run",
        )
        self._warn_of_unknown(state)
        return start

    def _warn_of_unknown(self, state: SavedState) -> None:
        """Log that the step of a checkpoint is unknown."""
        newest = self._files.newest
        if newest is None or not state.files:
            return
        name, size, mtime_ns = newest
        if mtime_ns > self.file.mtime_ns and state.files.get(name) != size:
            logger.warning(
                "%s was written after the state of step %d; a run that resumes from it "
                "gets step numbers that are too low",
                name,
                state.step,
            )

    # Training ------------------------------------------------------------------------------------

    @property
    def has_changes(self) -> bool:
        """Whether there are new files that the next check may accept as a checkpoint."""
        return bool(self._files.changed())

    def look(self, progress: Callable[[], Progress]) -> bool:
        """Write the state if a checkpoint was saved since the last check.

        Returns:
            Whether one was saved.
        """
        files = self._files.changed()
        is_saved = bool(files) and self._take(files, progress())
        self.file.write_again()
        return is_saved

    def close(self, *, has_ended: bool) -> None:
        """Write the remaining data.

        Args:
            has_ended: Whether training ended: a restart then begins another run.
        """
        if has_ended and self._states:
            self._states = [self._ended(state) for state in self._states]
            self.file.write(self._states)
        self.file.write_again(is_last=True)

    def _ended(self, state: SavedState) -> SavedState:
        run = state.run
        is_ours = run is not None and run.run_id == self._run.run_id
        return replace(state, run=replace(run, has_ended=True)) if run and is_ours else state

    def _take(self, files: dict[str, FileMark], now: Progress) -> bool:
        """Save a state for the complete files; return whether there are any.

        A file that this process has open is incomplete, or a log. When it is closed, it counts for
        the step at which it was first seen.
        """
        inodes = {mark.inode for mark in files.values()}
        if inodes <= self._being_written.keys() and self._looks_to_pass > 0:
            self._looks_to_pass -= 1
            return False
        being_written = inodes & open_inodes()
        complete = {p: mark for p, mark in files.items() if mark.inode not in being_written}
        since = [self._being_written.get(mark.inode, now) for mark in complete.values()]
        self._being_written = {i: self._being_written.get(i, now) for i in being_written}
        if not complete:
            self._looks_to_pass = self._pause = min(2 * self._pause or 1, _LONGEST_PAUSE)
            return False
        self._pause = 0
        self._files.accept(complete)
        self._save(min(since, key=lambda progress: progress.step), complete)
        return True

    def _save(self, progress: Progress, files: dict[str, FileMark]) -> None:
        last = self._states[-1] if self._states else None
        described = self._files.described(files, _MAX_FILES_OF_A_STATE)
        if last is not None and (last.step, last.training_run) == (
            progress.step,
            self._training_run,
        ):
            described = dict([*described.items(), *last.files.items()][:_MAX_FILES_OF_A_STATE])
            self._states.pop()
        self._states.append(
            SavedState(
                step=progress.step,
                saved_step=progress.saved_step,
                mode_steps=progress.mode_steps,
                training_run=self._training_run,
                run=replace(self._run, sequence=progress.sequence),
                files=described,
            )
        )
        del self._states[:-_MAX_STATES]
        self.file.write(self._states)
