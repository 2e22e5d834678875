"""Who this process is among the workers of torch.distributed."""

from __future__ import annotations

import itertools

import torch

__all__ = ["rank_and_size", "shared_run_id"]

_run_numbers = itertools.count()  # a process may train several times in one process group


def rank_and_size() -> tuple[int, int]:
    """Return rank and number of workers; (0, 1) without a process group."""
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized():
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()


def shared_run_id(run_id: str) -> str:
    """Return the RunId of rank 0 in every rank.

    It goes through the key-value store of the process group rather than through a collective, so
    that it cannot get between those of the training script.
    """
    rank, size = rank_and_size()
    if size == 1:
        return run_id
    store = torch.distributed.distributed_c10d._get_default_store()  # noqa: SLF001 - no public way
    key = f"stepwatch/run_id/{next(_run_numbers)}"
    if rank == 0:
        store.set(key, run_id)
        return run_id
    return bytes(store.get(key)).decode()
