"""A hook whose training may be interrupted, and continues at its last checkpoint.

Checkpoints are looked for where a step begins (`hook_layer.resuming.checkpoint`). A signal
interrupts training (`hook_layer.termination`); whatever follows in this process, an
exception or a `close`, is no end of it.
"""

from __future__ import annotations

import logging
import signal
import time
from functools import partial
from typing import Final

from hook_layer.config import CheckpointConfig
from hook_layer.guard import guarded
from hook_layer.recorder import INIT_STEP
from hook_layer.resuming.checkpoint import CheckpointKeeper, Progress, RunStart
from hook_layer.resuming.resume import is_same_run
from hook_layer.run_place import RunPlace
from hook_layer.session import TrialSession
from hook_layer.stopping import StoppableHook

__all__ = ["ResumableHook"]

logger = logging.getLogger("stepwatch")

_LOCK_TIMEOUT_S: Final = 1.0


class ResumableHook(StoppableHook):
    """A hook that decides where its run begins or continues, and notes how far it is."""

    _place: RunPlace
    _session: TrialSession | None
    _run_start: RunStart | None = None
    _checkpoints: CheckpointKeeper | None = None
    _last_saved_step = INIT_STEP
    _terminated_by: signal.Signals | None = None
    _resumes_at = 0

    @property
    def training_run(self) -> int:
        """How often this training was interrupted and resumed; known from the first step on."""
        return 0 if self._run_start is None else self._run_start.training_run

    def training_resumes_at(self, step: int) -> None:
        """Continue the step numbers of a training that its framework resumes.

        It does nothing once a step has begun, or where the state of a checkpoint is ahead.

        Args:
            step: The number of the next step, from 0.
        """
        self._resumes_at = step

    # The beginning -------------------------------------------------------------------------------

    def _own_start(self) -> RunStart:
        """Return where the run begins if it is up to this worker; decided once."""
        if self._run_start is not None:
            return self._run_start
        self._run_start = self._place.take(self._first_start)
        return self._run_start

    def _first_start(self) -> RunStart:
        checkpoint = self._place.targets.checkpoint
        return RunStart.new() if checkpoint is None else self._resumed_start(checkpoint)

    def _resumed_start(self, config: CheckpointConfig) -> RunStart:
        try:
            keeper = CheckpointKeeper(config, self._place.job.training_job_name)
            start = keeper.start(partial(is_same_run, self._place.targets.out, self._place.job))
        except Exception as error:  # noqa: BLE001 - training starts in any case
            self.failures.failed("checkpoints", error)
            return RunStart.new()
        self._checkpoints = keeper
        return start

    # Checkpoints ---------------------------------------------------------------------------------

    def _look_for_checkpoint(self) -> None:
        """Note the step if a checkpoint was saved since the last look."""
        if self._checkpoints is not None and self._session is not None:
            self._note_checkpoint(self._checkpoints, self._session)

    @guarded("checkpoints")
    def _note_checkpoint(self, checkpoints: CheckpointKeeper, session: TrialSession) -> None:
        checkpoints.look(
            lambda: Progress(
                step=self.step,
                saved_step=self._last_saved_step,
                mode_steps={mode.name: step for mode, step in self.mode_steps.items()},
                sequence=session.writer.submitted_sequence,
            )
        )

    # Signals -------------------------------------------------------------------------------------

    def note_termination(self, number: signal.Signals) -> None:
        """Note that a signal interrupts training; nothing that follows is its end."""
        self._terminated_by = number

    def store_before_termination(self) -> None:
        """Store what was captured, in the time that the options give, before the process ends.

        May be called in any thread, also in the midst of `close`.
        """
        session, timeout_s = self._session, self._options.termination_timeout_s
        number = self._terminated_by
        if session is None or timeout_s is None or number is None:
            return
        deadline = time.monotonic() + timeout_s
        # Between steps training may have ended, as in a worker of a pool that is done.
        is_between = self._record is None or self._is_captured
        is_stored = False
        if self.is_active:
            self._store_open_step(session, timeout_s)
            self._look_for_checkpoint()
        else:  # a `close` that this interrupts could wait for a lock that it holds itself
            is_stored = session.writer.wait_until_idle(timeout_s)
        is_stored = is_stored or session.interrupt(max(deadline - time.monotonic(), 0.0))
        logger.warning(
            "%s %s step %d; %s",
            number.name,
            "ended this process after" if is_between else "interrupted training at",
            self.step,
            "all is stored" if is_stored else f"not all could be stored in {timeout_s:g} s",
        )

    def _store_open_step(self, session: TrialSession, timeout_s: float) -> None:
        """Hand the open step over if everything of it was captured, and there is room.

        Or if a checkpoint was saved in it, behind which training will go on.
        """
        checkpoints = self._checkpoints
        is_complete = self._is_captured or (checkpoints is not None and checkpoints.has_news)
        if self._record is None or not is_complete:
            return
        session.writer.wait_until_idle(timeout_s)  # for room
        if self._lock.acquire(timeout=_LOCK_TIMEOUT_S):  # a stuck thread may hold it for ever
            try:
                self._end_step()
            finally:
                self._lock.release()
