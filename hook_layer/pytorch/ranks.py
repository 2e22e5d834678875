"""Ranks of a torch.distributed run: who they are, messages between them, and their agreements.

Ranks use the key-value store of the process group. Collectives could interfere with those of the
training script.
"""

from __future__ import annotations

import gc
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, Final
from weakref import finalize

import torch
from torch import nn

from hook_layer.capture.patched_functions import patch
from hook_layer.core.stop_listener import StopListener
from hook_layer.core.workers import Workers
from hook_layer.pytorch.modules import RegisteredModules
from hook_layer.pytorch.sharded_parameters import first_of_shard_groups
from hook_layer.resuming.checkpoint import RunStart
from hook_layer.run.stop_agreement import StopAgreement, StopGroup

__all__ = [
    "PIPELINE_MODULE",
    "TorchRanks",
    "is_inferring_shapes",
    "let_reductions_end",
    "rank_and_size",
]

_WAIT: Final = timedelta(seconds=60)
_UNTIL_REDUCTIONS_END_S: Final = 0.1
_num_groups: Counter[str] = Counter()  # a process may train several times in one process group
PIPELINE_MODULE: Final = "torch.distributed.pipelining.stage"
_INFERENCES: Final = frozenset({"_shape_inference", "_forward_metadata_inference"})
"""Pipeline functions that call the model to infer shapes, in different versions of torch."""


class TorchRanks(Workers):
    """The ranks of a torch.distributed run, each with a hook.

    All ranks must form the same number of groups of a name, in the same order. `max_wait` limits
    the wait for the decision of rank 0.
    """

    supports_auto = True
    max_wait = _WAIT

    def __init__(self, registered: RegisteredModules) -> None:
        self._registered = registered
        self._key: str | None = None
        self._announced: RunStart | None = None

    def form_group(self, name: str) -> None:
        """Join a group that has a hook of the same name in each rank, such as a trial's URI."""
        self._key = f"stepwatch/{_num_groups[name]}/{name}"
        _num_groups[name] += 1

    def announce_start(self, start: Callable[[], RunStart]) -> None:
        """Announce the run's start once to other ranks, if this is rank 0 and there are others."""
        rank, size = rank_and_size()
        if self._key is not None and rank == 0 and size > 1 and self._announced is None:
            self._announced = start()
            _store().set(f"{self._key}/start", self._announced.to_json())

    def agree_on_stop(self, listener: StopListener, model: str, poll_s: float) -> None:
        """Stop the run before the same step in all ranks; `model` is the same in all."""
        rank, size = rank_and_size()
        if self._key is None or size == 1:
            return
        is_alive = torch.distributed.is_initialized
        group = StopGroup(_store(), f"{self._key}/stop", rank, size, model, is_alive)
        let_reductions_end()
        agreement = StopAgreement(group, listener.own_request, poll_s=poll_s)
        listener.agreement = agreement
        finalize(self, agreement.leave)

    def shared_start(self, start: RunStart) -> RunStart:
        """Return the start of the run that rank 0 decided.

        Raises:
            TimeoutError: Rank 0 announced nothing in time.
        """
        rank, size = rank_and_size()
        if self._key is None or rank == 0 or size == 1:
            self.announce_start(lambda: start)
            return start if self._announced is None else self._announced
        store, key = _store(), f"{self._key}/start"
        try:
            store.wait([key], self.max_wait)
        except RuntimeError as error:
            raise TimeoutError(
                f"rank {rank} waited {self.max_wait.total_seconds():g} s for rank 0 and saves "
                "nothing. Give every rank a hook with the same out_dir and a registered "
                "model, or set include_workers='one'."
            ) from error
        return RunStart.from_json(bytes(store.get(key)).decode())

    def rank_and_size(self) -> tuple[int, int]:
        """Return this process's rank, and the number of ranks."""
        return rank_and_size()

    def rank_groups(self) -> Iterable[int]:
        """Return one rank of each pipeline stage and shard group, if they are known."""
        return first_of_shard_groups(p for _, p in self._registered.all_named_parameters())

    def pipeline_stage(self) -> int | None:
        """Return the index of this rank's pipeline stage; None without pipelines."""
        stages = map(_stage_of, self._registered.models)
        return next((stage for stage in stages if stage is not None), None)


def _stage_of(model: nn.Module) -> int | None:
    """Return the index of the pipeline stage of a model; None if it is not a stage."""
    kind = getattr(sys.modules.get(PIPELINE_MODULE), "_PipelineStageBase", None)
    if kind is None:
        return None
    stages = (thing for thing in gc.get_objects() if issubclass(type(thing), kind))
    return next((s.stage_index for s in stages if s.submod in (model, *model.modules())), None)


def is_inferring_shapes() -> bool:
    """Return whether a pipeline calls the model with uninitialized memory, to infer shapes."""
    module = sys.modules.get(PIPELINE_MODULE)
    if module is None:
        return False
    frame = sys._getframe(1)  # noqa: SLF001 - documented, and cheap
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_filename == module.__file__ and frame.f_code.co_name in _INFERENCES:
            return True
    return False


def let_reductions_end() -> None:
    """Make `destroy_process_group` wait briefly, to avoid a deadlock of gloo and Python's GIL.

    A gloo thread that finished a reduction needs the GIL to release a Python object. torch joins
    that thread while it holds the GIL. The more Python threads there are, the likelier both wait
    forever, and a hook has several. The patch applies once per process.
    """
    if not hasattr(torch.distributed.destroy_process_group, "__wrapped__"):
        patch(torch.distributed, "destroy_process_group", before=_wait_for_reductions)


def _wait_for_reductions(*_: object) -> None:
    time.sleep(_UNTIL_REDUCTIONS_END_S)


def rank_and_size() -> tuple[int, int]:
    """Return rank and world size; (0, 1) without a process group."""
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized():
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()


def _store() -> Any:
    return torch.distributed.distributed_c10d._get_default_store()  # noqa: SLF001 - no public way
