"""Ranks of a torch.distributed run, and their agreements."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from weakref import finalize

from hook_layer.core.stop_listener import StopListener
from hook_layer.core.workers import Workers
from hook_layer.pytorch.distributed import HookGroup, let_reductions_end, rank_and_size
from hook_layer.pytorch.meshes import first_of_shard_groups, stage_of
from hook_layer.pytorch.modules import RegisteredModules
from hook_layer.resuming.checkpoint import RunStart
from hook_layer.run.stop_agreement import StopAgreement

__all__ = ["TorchRanks"]


class TorchRanks(Workers):
    """The ranks of a torch.distributed run."""

    supports_auto = True

    def __init__(self, registered: RegisteredModules) -> None:
        self._registered = registered
        self._group: HookGroup | None = None

    def form_group(self, name: str) -> None:
        """Join a group that has a hook of the same name in each rank."""
        self._group = HookGroup(name)

    def announce_start(self, start: Callable[[], RunStart]) -> None:
        """Announce the run's start to other ranks that may already wait for it."""
        if self._group is not None:
            self._group.announce(lambda: start().to_json())

    def agree_on_stop(self, listener: StopListener, model: str, poll_s: float) -> None:
        """Stop the run before the same step in all ranks; `model` is the same in all."""
        group = None if self._group is None else self._group.stop_group(model)
        if group is None:
            return
        let_reductions_end()
        agreement = StopAgreement(group, listener.own_request, poll_s=poll_s)
        listener.agreement = agreement
        finalize(self, agreement.leave)

    def rank_and_size(self) -> tuple[int, int]:
        """Return this process's rank, and the number of ranks."""
        return rank_and_size()

    def shared_start(self, start: RunStart) -> RunStart:
        """Return the start of the run that rank 0 decided."""
        if self._group is None:
            return start
        return RunStart.from_json(self._group.shared_text(start.to_json))

    def rank_groups(self) -> Iterable[int]:
        """Return one rank of each pipeline stage and shard group, if they are known."""
        return first_of_shard_groups(p for _, p in self._registered.all_named_parameters())

    def pipeline_stage(self) -> int | None:
        """Return the index of this rank's pipeline stage; None without pipelines."""
        stages = map(stage_of, self._registered.models)
        return next((stage for stage in stages if stage is not None), None)
