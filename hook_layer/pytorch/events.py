"""What happens in a PyTorch training loop, and what is captured when; see `hook_layer.pytorch`."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor, nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from hook_layer.capture import TensorBackend
from hook_layer.collection_manager import CollectionManager, TensorPlan
from hook_layer.collections import Collection, CollectionKeys
from hook_layer.errors import HookConfigurationError
from hook_layer.format.job_file import new_run_id
from hook_layer.guard import guarded
from hook_layer.hook import BaseHook
from hook_layer.hook_options import HookOptions
from hook_layer.pytorch.amp import is_scaling, parameters_of, unscaled, watch_scalers
from hook_layer.pytorch.calls import ModuleCall, optimizer_call, tensors_in
from hook_layer.pytorch.capture import BufferPool, TorchBackend, is_capturable
from hook_layer.pytorch.collections import included, may_match, resolve_modules
from hook_layer.pytorch.distributed import SharedRunId, rank_and_size
from hook_layer.pytorch.modules import RegisteredModules
from hook_layer.pytorch.watch import GradientWatch, ModuleWatch
from hook_layer.recorder import INIT_STEP
from hook_layer.storage.base import Store

__all__ = ["TorchEvents"]

logger = logging.getLogger("stepwatch")

_GRADIENT_PREFIX = "gradient/"


class TorchEvents(BaseHook):
    """A hook that knows what modules, backward passes and optimisers do.

    Args:
        store: The trial's root.
        manager: The collections.
        options: Further options.
        dry_run: Decide everything and store nothing.
        all_workers: Whether every worker writes, or only the chief.
    """

    def __init__(
        self,
        store: Store,
        manager: CollectionManager,
        options: HookOptions,
        *,
        dry_run: bool = False,
        all_workers: bool = False,
    ) -> None:
        super().__init__(store, manager, options, dry_run=dry_run, all_workers=all_workers)
        self._torch_backend = TorchBackend(BufferPool(int(options.queue_bytes)))
        self._registered = RegisteredModules()
        self._gradients = GradientWatch(self._on_backward_end)
        self._modules = ModuleWatch(self._on_module_forward)
        self._run_id = SharedRunId(self.out_dir) if all_workers else None
        self._due_key: tuple[Any, ...] = ()
        self._wanted_modules: dict[tuple[Any, ...], set[nn.Module]] = {}
        self._nothing_due: set[tuple[Any, ...]] = set()
        self._num_met: dict[str, int] = {}
        self._num_gradients = 0
        self._has_optimizer = self._has_new_models = self._has_compiled = False
        self._warned_of_unseen_steps = self._warned_of_unseen_modules = False
        self._is_ours: WeakKeyDictionary[Optimizer, bool] = WeakKeyDictionary()
        self._handles: list[Any] = []

    def _watch_model(self, model: nn.Module) -> None:
        for cache in (self._wanted_modules, self._nothing_due, self._is_ours):
            cache.clear()
        self._has_new_models = True
        if len(self._registered.models) == 1:
            watch_scalers()
            self._handles.append(
                register_optimizer_step_pre_hook(optimizer_call(self._on_optimizer_step))
            )
        call = ModuleCall(model, self._on_forward, self._on_compile)
        self._handles.append(model.register_forward_pre_hook(call))
        if self._run_id is not None:
            self._run_id.announce(new_run_id())

    def _watch_loss(self, loss: nn.Module) -> None:
        self._handles.append(loss.register_forward_hook(ModuleCall(loss, self._on_loss)))

    # Where the hook looks in ---------------------------------------------------------------------

    def _on_forward(self, model: nn.Module, _: Any, __: Any) -> None:
        self._try_to_begin_step()
        if not self.is_active:
            return
        self._watch_modules()
        if self._due:
            self._capture_parameters(model)
            self._watch_gradients(model)
        else:
            self._gradients.unwatch()

    @guarded("steps")
    def _try_to_begin_step(self) -> None:
        resolve_modules(self.collection_manager, self._registered.names)
        self._begin_step()
        self._due_key = (self.collection_manager.version, *(c.name for c in self._due))
        self._gradients.new_step()
        self._num_met.clear()
        self._num_gradients = 0

    @guarded("parameters")
    def _capture_parameters(self, model: nn.Module) -> None:
        self._capture_all(self._due_parameters(model, ""))

    @guarded("gradients")
    def _watch_gradients(self, model: nn.Module) -> None:
        due = self._due_parameters(model, _GRADIENT_PREFIX)
        watched = {n: p for n, p in due.items() if p.requires_grad and is_capturable(p)}
        self._gradients.watch(watched)

    def _due_parameters(self, model: nn.Module, prefix: str) -> dict[str, nn.Parameter]:
        """Return the parameters whose tensor of this prefix is due, by that tensor's name."""
        key = (*self._due_key, model, prefix)
        if key in self._nothing_due:
            return {}
        named = ((prefix + name, p) for name, p in self._registered.named_parameters(model))
        due = {name: p for name, p in named if self._plan(name) is not None}
        if not due:
            self._nothing_due.add(key)
        return due

    @guarded("modules")
    def _watch_modules(self) -> None:
        if self._has_new_models:
            # A part that torch.compile is about to see must be watched by now, due or not.
            self._has_new_models = False
            self._modules.watch_only(self._modules_of(included(self.collection_manager)))
        else:
            self._modules.watch_only(self._due_modules())

    def _due_modules(self) -> set[nn.Module]:
        due = self._wanted_modules.get(self._due_key)
        if due is None:
            due = self._wanted_modules[self._due_key] = self._modules_of(self._due)
        return due

    @guarded("modules")
    def _on_compile(self, _: nn.Module) -> None:
        self._has_compiled = True
        with suppress(HookConfigurationError):  # raised again when the step begins
            resolve_modules(self.collection_manager, self._registered.names)
        self._modules.keep(self._modules_of(included(self.collection_manager)))

    @guarded("modules")
    def _warn_of_unseen_modules(self) -> None:
        """Log once which parts of a compiled model were not seen in a step."""
        if not self._has_compiled or not self._due or self._warned_of_unseen_modules:
            return
        names = sorted(self._registered.names[module] for module in self._due_modules())
        unseen = [name for name in names if f"{name}_output_" not in self._num_met]
        if unseen:
            self._warned_of_unseen_modules = True
            logger.warning(
                "inputs and outputs of %.500s are not saved: the compiled model does not call them,"
                " or it was compiled before it was registered (torch.compiler.reset() helps)",
                ", ".join(unseen),
            )

    @guarded("modules")
    def _on_module_forward(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        if self._due:
            name = self._registered.names[module]
            named = self._numbered(f"{name}_input_", inputs)
            self._capture_all(named | self._numbered(f"{name}_output_", outputs))

    def _on_loss(self, loss: nn.Module, inputs: Any, outputs: Any) -> None:
        self._capture_loss(self._registered.loss_name(loss), inputs, outputs)

    @guarded("losses")
    def _capture_loss(self, name: str, inputs: Any, outputs: Any) -> None:
        if self._due:
            self._capture_all(self._numbered(f"{name}_input_", inputs))
            losses = self._numbered(f"{name}_output_", outputs)
            self._capture_all(losses, member_of=(CollectionKeys.LOSSES,))

    @guarded("steps")
    def _on_backward_end(self) -> None:
        self._capture_gradients()
        if not self._has_optimizer and self._num_gradients >= self._gradients.num_watched:
            self._step_is_captured()

    @guarded("steps")
    def _on_optimizer_step(self, optimizer: Optimizer) -> None:
        if self.step == INIT_STEP:
            self._warn_if_unseen(optimizer)
        elif self._record is not None and self._trains_our_parameters(optimizer):
            self._has_optimizer = True
            self._capture_gradients(optimizer)
            self._step_is_captured()

    # How -----------------------------------------------------------------------------------------

    def _end_step(self) -> None:
        if self._record is not None:
            self._capture_gradients()  # of a backward pass that ended with an exception
            self._warn_of_unseen_modules()
        super()._end_step()

    @guarded("gradients")
    def _capture_gradients(self, optimizer: Optimizer | None = None) -> None:
        if not is_scaling():
            arrived = self._gradients.take()
        elif optimizer is not None:
            arrived = unscaled(optimizer, self._gradients.take(parameters_of(optimizer)))
        else:
            return  # scaled as they are they tell nothing
        self._num_gradients += len(arrived)
        self._capture_all(arrived)

    def _capture_all(self, tensors: Mapping[str, Tensor], member_of: tuple[str, ...] = ()) -> None:
        wanted: dict[str, tuple[Any, TensorPlan]] = {}
        for name, tensor in tensors.items():
            plan = self._plan(name, member_of)
            if plan is not None and is_capturable(tensor):
                wanted[name] = (tensor, plan)
        self._capture(wanted)

    def _numbered(self, prefix: str, value: Any) -> dict[str, Tensor]:
        """Return the tensors in `value` under `{prefix}{i}`; i goes on counting in a step."""
        tensors = tensors_in(value)
        first = self._num_met.get(prefix, 0)
        self._num_met[prefix] = first + len(tensors)
        return {f"{prefix}{first + i}": tensor for i, tensor in enumerate(tensors)}

    def _modules_of(self, collections: Iterable[Collection]) -> set[nn.Module]:
        return self._registered.named_like(lambda name: may_match(collections, name))

    def _trains_our_parameters(self, optimizer: Optimizer) -> bool:
        known = self._is_ours.get(optimizer)
        if known is None:
            ours = set(map(id, self._registered.all_parameters()))
            known = any(id(p) in ours for p in parameters_of(optimizer))
            self._is_ours[optimizer] = known
        return known

    def _warn_if_unseen(self, optimizer: Optimizer) -> None:
        """Log once that a model is trained whose forward passes do not reach the hook."""
        if self._warned_of_unseen_steps or not self._trains_our_parameters(optimizer):
            return
        if any(parameter.grad is not None for parameter in parameters_of(optimizer)):
            self._warned_of_unseen_steps = True
            logger.warning(
                "the registered model is trained, but its forward passes do not reach the hook, "
                "which saves nothing; if it was compiled and called before it was registered, call "
                "torch.compiler.reset() once"
            )

    def _backend_of(self, value: Any) -> TensorBackend:
        return self._torch_backend if isinstance(value, Tensor) else super()._backend_of(value)

    def _rank_and_size(self) -> tuple[int, int]:
        return rank_and_size()

    def _shared_run_id(self, run_id: str) -> str:
        return run_id if self._run_id is None else self._run_id.get(run_id)

    def _detach(self) -> None:
        self._gradients.unwatch()
        self._modules.stop()
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
