"""Passes on work that an evaluator call has no time for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lambdas.shared.observability import Telemetry
    from lambdas.shared.wake import Wake, WakeQueue

__all__ = ["MAX_HOPS", "Continuations", "OutOfTimeError"]

MAX_HOPS: Final = 1000
"""Maximum consecutive calls that pass on work; further work waits for the next sweep."""


class OutOfTimeError(Exception):
    """The function's time is almost over; the record must be delivered again."""


class Continuations:
    """Passes work on to a later call, through the function's own queue.

    Args:
        queue_name: Name of the function's queue: its rule's, or a placeholder.
        queue: The function's queue; None if records must be delivered again instead.
        telemetry: Logs and metrics.
    """

    def __init__(self, queue_name: str, queue: WakeQueue | None, telemetry: Telemetry) -> None:
        self._queue_name = queue_name
        self._queue = queue
        self._telemetry = telemetry

    def pass_on(self, wake: Wake, *, has_advanced: bool) -> None:
        """Let a later call continue with a run.

        Args:
            wake: The run, and the number of earlier calls that passed on work.
            has_advanced: Whether this call saved progress.

        Raises:
            OutOfTimeError: There is no queue, or no progress to continue from; the record itself
                must be delivered again.
            WakeNotSentError: The queue did not accept the message.
        """
        if not has_advanced:
            raise OutOfTimeError(f"no time to continue with {wake.root_uri}")
        if self._queue is None:
            raise OutOfTimeError(f"no time for all of {wake.root_uri}, and no queue for the rest")
        if wake.hop >= MAX_HOPS:
            self._telemetry.count("HopLimitReached")
            self._telemetry.error(
                "the run waits for the sweep: too many consecutive calls passed on work",
                hop=wake.hop,
            )
            return
        self._queue.send(self._queue_name, replace(wake, hop=wake.hop + 1))
        self._telemetry.count("Continuations")
