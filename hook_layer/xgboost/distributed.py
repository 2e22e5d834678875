"""The rank of this process in xgboost.collective, and messages of rank 0 to the others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from xgboost import collective

from hook_layer.core.state import HookState
from hook_layer.core.workers import Workers
from hook_layer.format.job_file import StopFile, parse_stop_file
from hook_layer.resuming.checkpoint import RunStart

__all__ = ["BoosterWorkers", "RoundAgreement", "rank_and_size", "shared_text"]


def rank_and_size() -> tuple[int, int]:
    """Return rank and number of workers; (0, 1) outside of a communicator."""
    return collective.get_rank(), collective.get_world_size()


def shared_text(text: str) -> str:
    """Return what rank 0 gives, in every rank; all ranks must call this at the same point.

    It is one reduction of one number where rank 0 gives nothing.

    Args:
        text: The text; only that of rank 0 counts.

    Raises:
        XGBoostError: The workers cannot reach each other.
    """
    own = np.frombuffer(text.encode(), np.uint8)
    if collective.get_rank() != 0:
        own = own[:0]
    (length,) = collective.allreduce(np.array([own.size], np.int64), collective.Op.MAX)
    if not length:
        return ""
    content = np.zeros(length, np.uint8)
    content[: own.size] = own
    return collective.allreduce(content, collective.Op.MAX).tobytes().decode()


class BoosterWorkers(Workers):
    """The ranks of xgboost.collective."""

    framework = "XGBoost"
    stop_hint = "; to stop all of them, create a hook in each with include_workers='all'"

    def __init__(self) -> None:
        self._identity: tuple[int, int] | None = None

    def rank_and_size(self) -> tuple[int, int]:
        """Return this process's rank, and the number of ranks."""
        rank, size = rank_and_size()
        if size > 1:  # a hook may be closed when the ranks have parted
            self._identity = rank, size
        return self._identity or (rank, size)

    def shared_start(self, start: RunStart) -> RunStart:
        """Return where all ranks begin, as rank 0 decided it."""
        return RunStart.from_json(shared_text(start.to_json()))


class RoundAgreement:
    """Lets all ranks stop after the same round, as rank 0 is asked to."""

    def __init__(
        self, state: HookState, own_request: Callable[[], StopFile | None], workers: Workers
    ) -> None:
        self._state = state
        self._own_request = own_request
        self._workers = workers
        self._request: StopFile | None = None

    def begin_step(self) -> StopFile | None:
        """Return None: ranks stop after a round."""
        return None

    def stop_now(self) -> StopFile | None:
        """Return the request to stop that rank 0 shared; of a single rank its own."""
        return self._request if self._workers.rank_and_size()[1] > 1 else self._own_request()

    def request_of_rank_0(self) -> None:
        """Learn from rank 0 whether all stop.

        All ranks must call this after every round, whatever else failed in them.
        """
        if not self._state.is_enabled or self._request is not None or rank_and_size()[1] == 1:
            return
        own = self._own_request()
        try:
            text = shared_text("" if own is None else own.encode().decode())
            if text:
                self._request = parse_stop_file(text.encode(), file="the word of worker 0")
        except Exception as error:  # noqa: BLE001 - training meets the same error
            self._state.failures.failed("stop", error)

    def close(self) -> None:
        """Take no further part: nothing to do."""
