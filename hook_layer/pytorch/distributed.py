"""Rank of this process in torch.distributed, and messages between ranks.

Ranks use the key-value store of the process group. Collectives could interfere with those of the
training script.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import Any, Final

import torch

from hook_layer.run.stop_agreement import StopGroup

__all__ = ["HookGroup", "let_reductions_end", "rank_and_size"]

_WAIT: Final = timedelta(seconds=60)
_UNTIL_REDUCTIONS_END_S: Final = 0.1
_num_groups: Counter[str] = Counter()  # a process may train several times in one process group


def rank_and_size() -> tuple[int, int]:
    """Return rank and world size; (0, 1) without a process group."""
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized():
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()


def let_reductions_end() -> None:
    """Make `destroy_process_group` wait briefly, to avoid a deadlock of gloo and Python's GIL.

    A gloo thread that finished a reduction needs the GIL to release a Python object. torch joins
    that thread while it holds the GIL. The more Python threads there are, the likelier both wait
    forever, and a hook has several. The patch applies once per process.
    """
    distributed = torch.distributed
    destroy = distributed.destroy_process_group
    if hasattr(destroy, "__wrapped__"):
        return

    @wraps(destroy)
    def destroy_later(*args: Any, **kwargs: Any) -> None:
        time.sleep(_UNTIL_REDUCTIONS_END_S)
        destroy(*args, **kwargs)

    distributed.destroy_process_group = destroy_later


class HookGroup:
    """The hooks of all ranks that belong together.

    All ranks must create the same number of groups of a name, in the same order.

    Args:
        name: Name of the group in all ranks, e.g. the URI of the trial's root.
    """

    def __init__(self, name: str) -> None:
        self._key = f"stepwatch/{_num_groups[name]}/{name}"
        self._wait = _WAIT
        self._announced: str | None = None
        _num_groups[name] += 1

    def stop_group(self, name: str) -> StopGroup | None:
        """Return a group whose members stop together; None with a single rank.

        Args:
            name: Identifies the training; must be the same in all ranks.
        """
        rank, size = rank_and_size()
        if size == 1:
            return None
        is_alive = torch.distributed.is_initialized
        return StopGroup(_store(), f"{self._key}/stop", rank, size, name, is_alive)

    def announce(self, text: Callable[[], str]) -> None:
        """Send a text to the other ranks once, if this is rank 0 and there are others."""
        rank, size = rank_and_size()
        if rank == 0 and size > 1 and self._announced is None:
            self._announced = text()
            _store().set(f"{self._key}/start", self._announced)

    def shared_text(self, text: Callable[[], str]) -> str:
        """Return the text that rank 0 announced; in rank 0, announce `text()` unless already done.

        Raises:
            TimeoutError: Rank 0 announced nothing in time.
        """
        rank, size = rank_and_size()
        if rank == 0 or size == 1:
            self.announce(text)
            return text() if self._announced is None else self._announced
        store, key = _store(), f"{self._key}/start"
        try:
            store.wait([key], self._wait)
        except RuntimeError as error:
            raise TimeoutError(
                f"rank {rank} waited {self._wait.total_seconds():g} s for rank 0 and saves "
                "nothing. Give every rank a hook with the same out_dir and a registered "
                "model, or set include_workers='one'."
            ) from error
        return bytes(store.get(key)).decode()


def _store() -> Any:
    return torch.distributed.distributed_c10d._get_default_store()  # noqa: SLF001 - no public way
