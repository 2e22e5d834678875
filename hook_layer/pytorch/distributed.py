"""Who this process is among the workers of torch.distributed, and which run they share."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any, Final

import torch

__all__ = ["SharedRunId", "rank_and_size"]

_WAIT: Final = timedelta(seconds=60)
_num_runs: Counter[str] = Counter()  # a process may train several times in one process group


def rank_and_size() -> tuple[int, int]:
    """Return rank and number of workers; (0, 1) without a process group."""
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized():
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()


class SharedRunId:
    """The RunId of rank 0, in every rank.

    It goes through the key-value store of the process group rather than through a collective, so
    that it cannot get between those of the training script. All ranks must make as many of these
    for a folder, in the same order.

    Args:
        out_dir: URI of the trial's root.
        wait: How long the other ranks wait for rank 0.
    """

    def __init__(self, out_dir: str, wait: timedelta = _WAIT) -> None:
        self._key = f"stepwatch/run_id/{_num_runs[out_dir]}/{out_dir}"
        self._wait = wait
        self._announced: str | None = None
        _num_runs[out_dir] += 1

    def announce(self, run_id: str) -> None:
        """Tell the other ranks, if this is rank 0 and there are others; only once."""
        rank, size = rank_and_size()
        if rank == 0 and size > 1 and self._announced is None:
            _store().set(self._key, run_id)
            self._announced = run_id

    def get(self, run_id: str) -> str:
        """Return what rank 0 announced; in rank 0 that is `run_id`, unless it was done before.

        Raises:
            TimeoutError: Rank 0 announced nothing in time.
        """
        rank, size = rank_and_size()
        if rank == 0 or size == 1:
            self.announce(run_id)
            return self._announced or run_id
        store = _store()
        try:
            store.wait([self._key], self._wait)
        except RuntimeError as error:
            raise TimeoutError(
                f"rank {rank} waited {self._wait.total_seconds():g} s for rank 0 to begin this "
                "run, and so saves nothing; with include_workers='all' every rank needs a hook "
                "with the same out_dir, and must register its model"
            ) from error
        return bytes(store.get(self._key)).decode()


def _store() -> Any:
    return torch.distributed.distributed_c10d._get_default_store()  # noqa: SLF001 - no public way
