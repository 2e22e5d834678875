"""Determines the folder of a run, which no other run writes to."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import replace
from itertools import count
from typing import Final

from hook_layer.configuration.job import HookTargets, JobEnvironment
from hook_layer.format.job_file import StopFile
from hook_layer.format.paths import JOB_FILE, job_name_of
from hook_layer.format.session_file import SessionRun
from hook_layer.process.process_end import ProcessEnd
from hook_layer.resuming.checkpoint import RunStart
from hook_layer.run.folder_claim import FolderClaim
from hook_layer.run.session_log import SessionLog
from hook_layer.weak_method import WeakMethod

__all__ = ["RunPlace"]

logger = logging.getLogger("stepwatch")

_MAX_ERROR_CHARACTERS: Final = 500


class RunPlace:
    """The folder of a run, and the run's entry in the session of its process.

    If the hook's folder is the session's, the run gets a subfolder. Otherwise it uses the given
    folder, or the next free one if another process writes there.

    Args:
        targets: Where the hook should write.
        job: Its job.
        give_way: Stops the writing when a newer hook of this process claims the folder; referenced
            weakly.

    Attributes:
        targets: Where the run is written.
        job: The job; the folder is the fallback for its name.
    """

    def __init__(
        self, targets: HookTargets, job: JobEnvironment, give_way: Callable[[], None]
    ) -> None:
        self.targets = self._asked = targets
        self.job = job
        self._give_way = WeakMethod(give_way)
        self._claim = FolderClaim(targets.out, give_way)
        self._notes = SessionLog.of_environment()
        self._run: SessionRun | None = None

    @property
    def is_in_session(self) -> bool:
        """Whether the run gets a subfolder of the session's folder."""
        return self._notes is not None and self.targets.out.uri == self._notes.root

    @property
    def stop_request(self) -> StopFile | None:
        """The stop request for every run of the session; None outside of a session."""
        return None if self._notes is None else self._notes.stop_request

    def process_trains(self) -> None:
        """Record that this process trains, even if it does not write."""
        if self._notes is not None:
            self._notes.process_trains()

    def take(self, start: Callable[[], RunStart]) -> RunStart:
        """Find a folder for a new run, and return its start, which names the folder.

        Args:
            start: Returns where the run begins; called when the folder to resume from is known.

        Returns:
            A refused start if the session was stopped or watches no further run.
        """
        notes = self._notes
        if notes is None:
            self._claim_free_folder()
            return self._started(start())
        if notes.stop_request is not None:
            return RunStart("", is_refused=True)
        is_of_session = self.is_in_session
        if not is_of_session:
            self._claim_free_folder({noted.run.uri for noted in notes.runs})
        begun = start()
        uri = None if is_of_session else self.targets.out.uri
        self._run = notes.begin_run(begun.run_id, begun.started_at, uri)
        if self._run is None:
            return RunStart("", is_refused=True)
        if is_of_session:
            self.move_to(self._run.uri)
            self._claim.take()
        return self._started(begun)

    def move_to(self, root: str) -> None:
        """Write to another folder from now on."""
        before, asked = self.targets.out.uri, self._asked.out.uri
        root = f"{root.rstrip('/')}/"
        if root == before:
            return
        self._claim.release()
        self.targets = self._asked.moved(
            lambda uri: root if uri == asked else f"{uri}{root.rstrip('/').rpartition('/')[2]}/"
        )
        self._claim = FolderClaim(self.targets.out, self._give_way())
        if self.job.training_job_name == job_name_of(before):
            self.job = replace(self.job, training_job_name=job_name_of(root))

    def leave(self, wait: Callable[[float], object]) -> None:
        """Release the folder while data is still being written; see `FolderClaim.leave`."""
        self._claim.leave(wait)

    def end(self, end: str = "Completed", details: str | None = None) -> None:
        """Release the folder, and record the end of the run in the session."""
        self._claim.release()
        run, self._run = self._run, None
        if run is None or self._notes is None:
            return
        error = ProcessEnd.error
        if end == "Completed" and error is not None:
            end, details = "Failed", f"{type(error).__name__}: {error}"[:_MAX_ERROR_CHARACTERS]
        self._notes.end_run(run.name, end, details)

    def _started(self, start: RunStart) -> RunStart:
        return replace(start, root=self.targets.out.uri)

    def _claim_free_folder(self, used: Collection[str] = ()) -> None:
        """Claim the requested folder, or the next free one."""
        asked = self.targets.out.uri
        holder = "an earlier run of this command" if asked in used else self._claim.take()
        if holder is None:
            return
        for number in count(2):
            self.move_to(f"{asked.rstrip('/')}-{number}")
            if not self.targets.out.exists(JOB_FILE) and self._claim.take() is None:
                break
        logger.warning(
            "%s is in use by %s, so this hook writes to %s. Give every run a folder of its "
            "own. Call torch.distributed.init_process_group before the first step of a "
            "distributed run.",
            asked,
            holder,
            self.targets.out.uri,
        )
