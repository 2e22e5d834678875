"""Captures tensors of PyTorch under their names."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

from hook_layer.capture import CapturedTensor, TensorBackend
from hook_layer.collection_manager import TensorPlan
from hook_layer.collections import CollectionKeys
from hook_layer.configuration.hook_setup import HookSetup
from hook_layer.format.statistics_block import Shard
from hook_layer.guard import guarded
from hook_layer.layer_collections import resolve_layers
from hook_layer.optimizer_collection import keep_apart
from hook_layer.pytorch.amp import parameters_of
from hook_layer.pytorch.calls import tensors_in
from hook_layer.pytorch.capture import BufferPool, TorchBackend, is_capturable
from hook_layer.pytorch.host_copy import not_disturbing_recordings
from hook_layer.pytorch.meshes import first_of_shard_groups, stage_of
from hook_layer.pytorch.modules import RegisteredModules
from hook_layer.pytorch.values import own_shard, shard_of
from hook_layer.pytorch.watch import GradientWatch
from hook_layer.pytorch.workers import TorchWorker
from hook_layer.pytorch.zero import zero_part

__all__ = ["MAX_CALLS_A_STEP", "TorchCapture"]

logger = logging.getLogger("stepwatch")

_GRADIENT_PREFIX = "gradient/"
_STATE_PREFIX = f"{CollectionKeys.OPTIMIZER_VARIABLES}/"
MAX_CALLS_A_STEP: Final = 10_000
"""How many tensors a module may have in one step, as `name_output_0` and so on."""
_CHECKED_AGAIN = 1.1  # of the number of tensors: to look at all at each pass would take long


class TorchCapture(TorchWorker):
    """A hook that knows what there is to capture of registered models.

    Args:
        setup: What the hook is made of.
    """

    def __init__(self, setup: HookSetup) -> None:
        super().__init__(setup)
        self._torch_backend = TorchBackend(BufferPool(int(setup.options.queue_bytes)))
        self._registered = RegisteredModules()
        self._gradients = GradientWatch(self._on_backward_end)
        self._due_key: tuple[Any, ...] = ()
        self._nothing_due: set[tuple[Any, ...]] = set()
        self._met_models: set[nn.Module] = set()
        self._num_met: dict[str, int] = {}
        self._warned_of_shards = self._warned_of_full_step = self._warned_of_unseen_steps = False
        self._warned_of_many_calls = self._warned_of_recording = False
        self._num_checked = 0

    def _on_backward_end(self) -> None:
        """Take gradients that arrived."""
        raise NotImplementedError

    def _prepare_collections(self) -> None:
        """Make the collections fit the registered models.

        Raises:
            HookConfigurationError: A collection has a module that is not part of them (before
                the first step only).
        """
        on_mistake = self.collector.on_mistake(is_first=not self.clock.num_steps)
        keep_apart(self.collection_manager)
        resolve_layers(self.collection_manager, self._registered.names, on_mistake)

    def _begin_capture(self) -> None:
        """Note that a step began, and what is due in it."""
        self._due_key = (self.collection_manager.version, *(c.name for c in self._due))
        self._gradients.new_step()
        self._met_models.clear()
        self._num_met.clear()
        self._num_checked = 0

    def _rank_groups(self) -> Iterable[int]:
        return first_of_shard_groups(p for _, p in self._registered.all_named_parameters())

    def _pipeline_stage(self) -> int | None:
        stages = map(stage_of, self._registered.models)
        return next((stage for stage in stages if stage is not None), None)

    def _is_full(self) -> bool:
        """Return whether the open step holds as much as may wait for the writer, and log that."""
        tensors = () if self._record is None else self._record.tensors
        if self._record is None or len(tensors) <= self._num_checked * _CHECKED_AGAIN:
            return False
        self._num_checked = len(tensors)
        if self._record.nbytes < self._options.queue_bytes:
            return False
        if not self._warned_of_full_step:
            self._warned_of_full_step = True
            logger.warning(
                "step %d ended before all optimizers stepped; its %d tensors fill "
                "queue_bytes=%d. Save less, or raise queue_bytes.",
                self.step,
                len(tensors),
                int(self._options.queue_bytes),
            )
        return True

    # Parameters and their gradients --------------------------------------------------------------

    def _watch_parameters(self, model: nn.Module) -> None:
        """Capture a model's parameters and await their gradients, once in a step."""
        if model not in self._met_models:
            self._met_models.add(model)
            self._adopt_unlisted(model)
            self._capture_parameters(model)
            self._watch_gradients(model)

    @guarded("parameters")
    def _adopt_unlisted(self, model: nn.Module) -> None:
        found = self._registered.adopt_unlisted(model)
        if found:
            self._nothing_due.clear()
            logger.warning(
                "%.500s of %s get gradients but are in a plain list or dict, so "
                "parameters() and state_dict() lack them; use nn.ModuleList, nn.ModuleDict "
                "or nn.ParameterList",
                ", ".join(found),
                self._registered.models[model],
            )

    @guarded("parameters")
    def _capture_parameters(self, model: nn.Module) -> None:
        self._capture_all(self._due_parameters(model, ""))

    @guarded("gradients")
    def _watch_gradients(self, model: nn.Module) -> None:
        due = self._due_parameters(model, _GRADIENT_PREFIX)
        watched = {n: p for n, p in due.items() if p.requires_grad and is_capturable(p)}
        self._gradients.watch(watched)

    def _awaited_gradients(self, parameters: Iterable[nn.Parameter]) -> dict[str, nn.Parameter]:
        """Return those parameters whose gradients this step is to have, by their names."""
        chosen = {id(parameter) for parameter in parameters}
        named: dict[str, nn.Parameter] = {}
        for model in self._met_models:
            named |= self._due_parameters(model, _GRADIENT_PREFIX)
        return {name: p for name, p in named.items() if id(p) in chosen}

    def _due_parameters(self, model: nn.Module, prefix: str) -> dict[str, nn.Parameter]:
        """Return the parameters whose tensor of this prefix is due, by that tensor's name."""
        key = (*self._due_key, model, prefix)
        if key in self._nothing_due:
            return {}
        named = [(prefix + name, p) for name, p in self._registered.named_parameters(model)]
        # A collection names no gradient that will never come: frozen is not cut off.
        coming = [(name, p) for name, p in named if p.requires_grad or not prefix]
        due = {name: p for name, p in coming if self._plan(name) is not None}
        if not due and not any(c.matches(name) for c in self._due for name, _ in named):
            self._nothing_due.add(key)
        return due

    def _warn_if_unseen(self, optimizer: Optimizer) -> None:
        """Log once that a model is trained whose forward passes do not reach the hook."""
        if self._warned_of_unseen_steps:
            return
        if any(parameter.grad is not None for parameter in parameters_of(optimizer)):
            self._warned_of_unseen_steps = True
            logger.warning(
                "the registered model trains, but the hook sees no forward pass and saves "
                "nothing. If it was compiled and called before registration, call "
                "torch.compiler.reset() once."
            )

    # How -----------------------------------------------------------------------------------------

    def _capture_all(self, tensors: Mapping[str, Tensor], member_of: tuple[str, ...] = ()) -> None:
        wanted: dict[str, tuple[Any, TensorPlan]] = {}
        for name, tensor in tensors.items():
            plan = self._plan(name, member_of)
            if plan is not None and is_capturable(tensor):
                wanted[name] = (tensor, plan)
        self._capture(wanted)

    def _numbered(self, prefix: str, value: Any) -> dict[str, Tensor]:
        """Return the tensors in `value` under `{prefix}{i}`; i continues counting in a step.

        Nothing once there are very many: a loss that another model continues with, behind the last
        step of this one, would fill that step without end.
        """
        tensors = tensors_in(value)
        first = self._num_met.get(prefix, 0)
        if first >= MAX_CALLS_A_STEP:
            self._warn_of_many_calls(prefix)
            return {}
        self._num_met[prefix] = first + len(tensors)
        return {f"{prefix}{first + i}": tensor for i, tensor in enumerate(tensors)}

    def _warn_of_many_calls(self, prefix: str) -> None:
        if not self._warned_of_many_calls:
            self._warned_of_many_calls = True
            logger.warning(
                "step %d has %d tensors %s... and gets no more, because registered parts "
                "are called again and again without a further step of the model",
                self.step,
                MAX_CALLS_A_STEP,
                prefix,
            )

    @guarded("statistics")
    def _send_statistics(self) -> None:
        if not self._torch_backend.send_statistics():
            self._warn_of_recording()

    def _captured(self, tensors: Mapping[str, tuple[Any, TensorPlan]]) -> dict[str, CapturedTensor]:
        if not any(isinstance(value, Tensor) and value.is_cuda for value, _ in tensors.values()):
            return self._captured_parts(tensors)
        if torch.cuda.is_current_stream_capturing():
            # A graph that copies to the host would do so at each replay, into memory that is long
            # given back.
            self._warn_of_recording()
            return {}
        with not_disturbing_recordings():
            return self._captured_parts(tensors)

    def _captured_parts(
        self, tensors: Mapping[str, tuple[Any, TensorPlan]]
    ) -> dict[str, CapturedTensor]:
        """Capture of each tensor what this rank has, and note which part of it that is."""
        own: dict[str, tuple[Any, TensorPlan]] = {}
        shards: dict[str, Shard] = {}
        for name, (value, plan) in tensors.items():
            try:
                part, shard = self._own_part(name, value)
            except ValueError as error:
                self.failures.tensor_failed(name, error)
                continue
            own[name] = part, plan
            if shard is not None:
                shards[name] = shard
        captured = super()._captured(own) if own else {}
        if shards and not self._all_workers and not self._warned_of_shards:
            self._warned_of_shards = True
            logger.warning(
                "%.200s is sharded over ranks and only one rank writes, so statistics "
                "cover its shard only; include_workers='auto' covers all shards",
                next(iter(shards)),
            )
        for name in shards.keys() & captured.keys():
            captured[name].shard = shards[name]
        return captured

    def _own_part(self, name: str, value: Any) -> tuple[Any, Shard | None]:
        """Return what this rank has of a tensor, and which part that is; None for the whole.

        Raises:
            ValueError: It is a flat parameter's that cannot be divided now.
        """
        if not isinstance(value, Tensor):
            return value, None
        flat = self._registered.part_of(_parameter_name(name))
        if flat is not None:
            return flat.of(value)
        return zero_part(value) or (own_shard(value), shard_of(value))

    def _warn_of_recording(self) -> None:
        if not self._warned_of_recording:
            self._warned_of_recording = True
            logger.warning(
                "a CUDA graph is being captured; what only the device replays is not saved"
            )

    def _backend_of(self, value: Any) -> TensorBackend:
        if isinstance(value, Tensor):
            return self._torch_backend
        return super()._backend_of(value)


def _parameter_name(name: str) -> str:
    """Return the parameter that a tensor is of: itself, its gradient, or a state of its."""
    if name.startswith(_STATE_PREFIX):
        return name.removeprefix(_STATE_PREFIX).rpartition("/")[0]
    return name.removeprefix(_GRADIENT_PREFIX)
