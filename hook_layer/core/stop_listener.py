"""Decides at the beginning of a step whether a run stops because of a stop request."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from hook_layer.configuration.hook_options import OnStop
from hook_layer.core.workers import Workers
from hook_layer.format.job_file import StopFile

__all__ = ["Agreement", "StopListener"]

logger = logging.getLogger("stepwatch")


class Agreement(Protocol):
    """Ranks that stop before the same step, as in `hook_layer.run.stop_agreement`."""

    def begin_step(self) -> StopFile | None:
        """Begin a training step; return the stop request if the step must not begin."""
        ...

    def stop_now(self) -> StopFile | None:
        """Return the stop request if no further step may begin."""
        ...

    def close(self) -> None:
        """Leave the agreement."""
        ...


class StopListener:
    """Decides whether the run stops.

    Args:
        on_stop: `raise`: the hook ends the run; `flag`: only `request` changes.
        own_request: Returns the stop request for this rank; any thread may call it.
        workers: The ranks of the run.

    Attributes:
        agreement: Agreement with other ranks on when to stop; None: this rank decides alone.
        raises: False if the framework ends its loop itself, without an error.
        is_training_step: Whether the next step is a training step. Ranks may have different numbers
            of other steps.
    """

    def __init__(
        self, on_stop: OnStop, own_request: Callable[[], StopFile | None], workers: Workers
    ) -> None:
        self.agreement: Agreement | None = None
        self.raises = self.is_training_step = True
        self.own_request = own_request
        self._ends_run = on_stop == "raise"
        self._workers = workers
        self._has_warned = self._has_said_why = False

    @property
    def request(self) -> StopFile | None:
        """The stop request, if the run may stop now; None promises to begin another step."""
        return self.own_request() if self.agreement is None else self.agreement.stop_now()

    @property
    def ending_request(self) -> StopFile | None:
        """The stop request, if the run may stop now and the hook ends it."""
        return self.request if self._ends_run else None

    @property
    def is_alone_among_ranks(self) -> bool:
        """Whether there are other ranks, and no agreement with them.

        If one rank stopped alone, the others would wait for it forever.
        """
        return self.agreement is None and self._workers.rank_and_size()[1] > 1

    def refuse(self, request: StopFile | None) -> StopFile | None:
        """Return a stop request for a run that has not begun, if the hook ends it."""
        return request if self._ends_run else None

    def begin_step(self) -> StopFile | None:
        """Return the stop request before a step begins, if the step must not begin."""
        if self.agreement is not None:
            request = self.agreement.begin_step() if self.is_training_step else None
        else:
            request = self.own_request() if self.raises else None
        if request is None or not self.raises or not self._ends_run:
            return None
        return request if self._may_end() else None

    def ends_loop(self, last: str) -> bool:
        """Return whether the framework must end its loop now; log the reason once.

        Args:
            last: The last unit of work, such as `step 7`, for the log.
        """
        request = self.ending_request
        if request is None or not self._may_end():
            return False
        if not self._has_said_why:
            self._has_said_why = True
            logger.warning("training ends after %s, as requested: %s", last, request.reason)
        return True

    def _may_end(self) -> bool:
        """Return whether this rank may end the run; if not, log that once."""
        if not self.is_alone_among_ranks:
            return True
        if not self._has_warned:
            self._has_warned = True
            hint = self._workers.stop_hint
            logger.warning("with several ranks, a stop request only sets hook.should_stop%s", hint)
        return False

    def close(self) -> None:
        """Leave the agreement with other ranks."""
        if self.agreement is not None:
            self.agreement.close()
