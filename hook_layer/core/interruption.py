"""Stores captured tensors when a signal interrupts training, before the process ends."""

from __future__ import annotations

import logging
import signal
import time
from typing import Final

from hook_layer.core.clock import StepClock
from hook_layer.core.recorder import Recorder
from hook_layer.core.session import Session
from hook_layer.core.trial_session import TrialSession
from hook_layer.process.termination import HANDLERS

__all__ = ["Interruption"]

logger = logging.getLogger("stepwatch")

_LOCK_TIMEOUT_S: Final = 1.0


class Interruption:
    """Stores captured tensors when a signal interrupts training.

    A later exception or `close` in this process does not count as the end of training.

    Attributes:
        signal: The signal that interrupted training; None without any.
    """

    def __init__(self, session: Session, recorder: Recorder, clock: StepClock) -> None:
        self.signal: signal.Signals | None = None
        self._session = session
        self._recorder = recorder
        self._clock = clock

    def listen(self) -> None:
        """Listen to signals, even if the handler was replaced since the last call."""
        session = self._session
        has_trial = session.trial is not None and session.is_active
        if has_trial and session.options.termination_timeout_s is not None:
            for handler in HANDLERS:
                handler.add(self)

    def close(self) -> None:
        """Stop listening."""
        for handler in HANDLERS:
            handler.remove(self)

    def note_termination(self, number: signal.Signals) -> None:
        """Note that a signal interrupts training, which then has not ended."""
        self.signal = number

    def store_before_termination(self) -> None:
        """Store captured tensors within the time limit of the options, before the process ends.

        Any thread may call it, also during `close`.
        """
        session, timeout_s = self._session, self._session.options.termination_timeout_s
        trial, number = session.trial, self.signal
        if trial is None or timeout_s is None or number is None:
            return
        deadline = time.monotonic() + timeout_s
        # Between steps training may have ended, as in a finished worker of a pool.
        is_between = self._recorder.is_between_steps
        is_stored = False
        if session.is_active:
            self._store_open_step(trial, timeout_s)
            session.resumption.check_for_checkpoint()
        else:  # an interrupted `close` could hold the lock that a second one waits for
            is_stored = trial.writer.wait_until_idle(timeout_s)
        is_stored = is_stored or trial.writer.close(max(deadline - time.monotonic(), 0.0))
        is_stored = is_stored and not trial.writer.counters.steps_in_spool
        logger.warning(
            "%s %s step %d; %s",
            number.name,
            "ended this process after" if is_between else "interrupted training at",
            self._clock.step,
            "all is stored" if is_stored else f"not all could be stored in {timeout_s:g} s",
        )

    def _store_open_step(self, trial: TrialSession, timeout_s: float) -> None:
        """Hand the open step over if it is complete and there is room.

        Also do so if a checkpoint was saved in it, from which training will continue.
        """
        recorder = self._recorder
        is_complete = recorder.is_captured or self._session.resumption.has_new_checkpoint
        if recorder.record is None or not is_complete:
            return
        trial.writer.wait_until_idle(timeout_s)  # for room
        if recorder.lock.acquire(timeout=_LOCK_TIMEOUT_S):  # a stuck thread may hold it forever
            try:
                recorder.end_step()
            finally:
                recorder.lock.release()
