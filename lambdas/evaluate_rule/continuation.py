"""What becomes of the work that one call of an evaluator has no time for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lambdas.shared.observability import Telemetry
    from lambdas.shared.wake import Wake, WakeQueue

__all__ = ["MAX_HOPS", "Continuations", "OutOfTimeError"]

MAX_HOPS: Final = 1000
"""Calls in a row that may pass their work on; what is left then waits for the next sweep."""


class OutOfTimeError(Exception):
    """The function's time is nearly over; the record must be delivered again."""


class Continuations:
    """Passes work on to a later call, through the function's own queue.

    Args:
        queue_name: Name of the function's queue: its rule's, or what stands for one.
        queue: The function's queue; None where records must be delivered again instead.
        telemetry: Logs and metrics.
    """

    def __init__(self, queue_name: str, queue: WakeQueue | None, telemetry: Telemetry) -> None:
        self._queue_name = queue_name
        self._queue = queue
        self._telemetry = telemetry

    def pass_on(self, wake: Wake, *, has_advanced: bool) -> None:
        """Have a later call go on with a run.

        Args:
            wake: Which run, and how many calls before this one passed their work on.
            has_advanced: Whether this call saved a state that is nearer to the end.

        Raises:
            OutOfTimeError: There is no queue, or nothing was done that a later call could go on
                with; the record itself must be delivered again.
            WakeNotSentError: The queue did not take the message.
        """
        if not has_advanced:
            raise OutOfTimeError(f"no time to take {wake.root_uri} any further")
        if self._queue is None:
            raise OutOfTimeError(f"no time for all of {wake.root_uri}, and no queue to go on with")
        if wake.hop >= MAX_HOPS:
            self._telemetry.count("HopLimitReached")
            self._telemetry.error(
                "the run is left to the sweep: too many calls in a row passed their work on",
                hop=wake.hop,
            )
            return
        self._queue.send(self._queue_name, replace(wake, hop=wake.hop + 1))
        self._telemetry.count("Continuations")
