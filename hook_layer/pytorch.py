"""The hook for PyTorch: `from hook_layer.pytorch import Hook`.

Where the hook looks in, in a training loop:

    hook = Hook("s3://bucket/mnist-7")              # nothing is written before the first step
    hook.register_module(model)
    hook.register_loss(criterion)
    for inputs, labels in batches:
        outputs = model(inputs)                     # STEP BEGINS, before the forward pass of the
                                                    #   registered module: the step before is handed
                                                    #   over if it is still open; a stop request is
                                                    #   raised; weights and biases are captured
                                                    # MODULE FORWARD: inputs and outputs of modules
        loss = criterion(outputs, labels)           # LOSS FORWARD: loss and its inputs
        optimizer.zero_grad()
        loss.backward()                             # BACKWARD ENDED: gradients, as they are in
                                                    #   `parameter.grad`
        optimizer.step()                            # STEP IS CAPTURED, before parameters change: it
                                                    #   is handed to the writer's thread
        hook.save_scalar("lr", lr)                  # belongs to this step, too; see below
    hook.close()                                    # also on exit: waits for the writer, end marker

A step is one forward pass of the registered module. Weights have the values before the step.
Under gradient accumulation each forward pass is a step, and its gradients are the sums so far.
In a loop without a `torch.optim` optimiser a step is captured when all gradients have arrived, and
where neither happens (evaluation) it ends where the next one begins, at `set_mode` or at `close`.
What is saved behind the optimiser's step keeps steps open until the next one begins, from the first
time that it is seen; `hook_layer.recorder` says how. In the modes EVAL and PREDICT gradients are
not saved.

Names: parameters `{RootClass}_{parameter}`, gradients `gradient/{RootClass}_{parameter}`, inputs
and outputs of modules `{module}_input_{i}` and `{module}_output_{i}` (the root and losses under
their class name), `scalar/{name}`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor, nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from hook_layer.capture import TensorBackend
from hook_layer.collection_manager import TensorPlan
from hook_layer.collections import CollectionKeys
from hook_layer.config import hook_enabled, resolve_out_dir
from hook_layer.errors import HookConfigurationError, TrainingStoppedError
from hook_layer.format.modes import ModeKeys
from hook_layer.format.modes import ModeKeys as modes  # noqa: N813 - the original's name
from hook_layer.guard import guarded
from hook_layer.hook import BaseHook
from hook_layer.hook_options import HookOptions, HookReport, OnStop, check_arguments
from hook_layer.pytorch_capture import BufferPool, TorchBackend, tensors_in
from hook_layer.pytorch_collections import Collection, candidate_names, make_manager
from hook_layer.pytorch_distributed import rank_and_size, shared_run_id
from hook_layer.pytorch_watch import GradientWatch, ModuleWatch
from hook_layer.reductions import ReductionConfig
from hook_layer.save_config import SaveConfig, SaveConfigMode
from hook_layer.stop_signal import DEFAULT_STOP_POLL_S
from hook_layer.storage.base import open_store
from hook_layer.writer import DEFAULT_QUEUE_BYTES, OnFull

__all__ = [
    "Collection",
    "CollectionKeys",
    "Hook",
    "HookReport",
    "ReductionConfig",
    "SaveConfig",
    "SaveConfigMode",
    "TrainingStoppedError",
    "del_hook",
    "get_hook",
    "modes",
    "set_hook",
]

_GRADIENT_PREFIX = "gradient/"


class Hook(BaseHook):
    """Captures tensors of a PyTorch training job; see this module for when and under which names.

    Args:
        out_dir: Folder, or `s3://bucket/prefix`.
        export_tensorboard: Not available yet.
        tensorboard_dir: Not available yet.
        dry_run: Decide everything and store nothing.
        reduction_config: What is stored of a tensor; default: its value.
        save_config: When; default: every 500 steps.
        include_regex: Save also tensors whose name matches one of these.
        include_collections: Save also these collections; `losses` always is.
        save_all: Save everything.
        include_workers: `one` or `all` of the workers of torch.distributed.
        statistics: Whether the index gets statistics of every captured tensor.
        stop: `raise` lets a stop request raise `TrainingStoppedError` where the next step would
            begin; `flag` only sets `hook.should_stop`.
        stop_poll_s: Time between two looks for a stop request, seconds.
        on_full: `wait` holds training up while the writer's memory is full, `drop` drops steps.
        queue_bytes: The writer's memory bound, bytes.
        close_timeout_s: How long `close` waits for the writer, seconds; None: for ever.

    Raises:
        HookConfigurationError: An argument makes no sense.
    """

    def __init__(  # noqa: PLR0917 - the original's arguments
        self,
        out_dir: str | os.PathLike[str] | None = None,
        export_tensorboard: bool = False,
        tensorboard_dir: str | None = None,
        dry_run: bool = False,
        reduction_config: ReductionConfig | None = None,
        save_config: SaveConfig | SaveConfigMode | Mapping[ModeKeys, SaveConfigMode] | None = None,
        include_regex: str | Iterable[str] | None = None,
        include_collections: str | Iterable[str] | None = None,
        save_all: bool = False,
        include_workers: str = "one",
        *,
        statistics: bool = True,
        stop: OnStop = "raise",
        stop_poll_s: float = DEFAULT_STOP_POLL_S,
        on_full: OnFull = "wait",
        queue_bytes: int = DEFAULT_QUEUE_BYTES,
        close_timeout_s: float | None = 600.0,
    ) -> None:
        check_arguments(export_tensorboard, tensorboard_dir, include_workers)
        options = HookOptions(statistics, stop, stop_poll_s, on_full, queue_bytes, close_timeout_s)
        manager = make_manager(
            reduction_config=reduction_config,
            save_config=save_config,
            include_regex=include_regex,
            include_collections=include_collections,
            save_all=save_all,
        )
        where = resolve_out_dir(out_dir) if hook_enabled() else "memory://switched-off"
        all_workers = include_workers == "all"
        super().__init__(
            open_store(where), manager, options, dry_run=dry_run, all_workers=all_workers
        )
        self._torch_backend = TorchBackend(BufferPool(int(queue_bytes)))
        self._gradients = GradientWatch(self._on_backward_end)
        self._modules = ModuleWatch(self._on_module_forward)
        self._roots: dict[nn.Module, str] = {}
        self._losses: dict[nn.Module, str] = {}
        self._module_names: dict[nn.Module, str] = {}
        self._due_key: tuple[Any, ...] = ()
        self._wanted_modules: dict[tuple[Any, ...], dict[str, nn.Module]] = {}
        self._nothing_due: set[tuple[Any, ...]] = set()
        self._num_met: dict[str, int] = {}
        self._num_gradients = 0
        self._has_optimizer = False
        self._is_ours: WeakKeyDictionary[Optimizer, bool] = WeakKeyDictionary()
        self._handles: list[Any] = []
        set_hook(self)

    def register_module(self, module: nn.Module) -> None:
        """Watch a model: each of its forward passes is a step.

        Raises:
            HookConfigurationError: It is no module, or was registered before.
        """
        if not isinstance(module, nn.Module):
            raise HookConfigurationError(f"module={module!r} must be a torch.nn.Module")
        if module in self._module_names:
            raise HookConfigurationError(f"this {type(module).__name__} was registered before")
        if not self.is_active:
            return
        self._module_names.update({child: name for name, child in module.named_modules()})
        self._module_names[module] = self._roots[module] = type(module).__name__
        self._handles.append(module.register_forward_pre_hook(self._on_forward))
        if len(self._roots) == 1:
            self._handles.append(register_optimizer_step_pre_hook(self._on_optimizer_step))

    def register_hook(self, module: nn.Module) -> None:
        """Same as `register_module`."""
        self.register_module(module)

    def register_loss(self, loss_module: nn.Module) -> None:
        """Watch a loss, any module: its output becomes part of the collection `losses`.

        Raises:
            HookConfigurationError: It is no module.
        """
        if not isinstance(loss_module, nn.Module):
            raise HookConfigurationError(
                f"loss_module={loss_module!r} must be a torch.nn.Module, e.g. nn.CrossEntropyLoss()"
            )
        if self.is_active and loss_module not in self._losses:
            self._losses[loss_module] = type(loss_module).__name__
            self._handles.append(loss_module.register_forward_hook(self._on_loss))

    def record_tensor_value(self, tensor_name: str, tensor_value: Tensor) -> None:
        """Capture the value of a functional loss, e.g. `F.mse_loss(...)`, as `<name>_output_0`."""
        self._capture_loss(tensor_name, (), tensor_value)

    # Where the hook looks in ---------------------------------------------------------------------

    def _on_forward(self, module: nn.Module, _: Any) -> None:
        self._try_to_begin_step()
        if not self.is_active:
            return
        if not self._due:
            self._gradients.unwatch()
            self._modules.watch_only({})
            return
        self._capture_parameters(module)
        self._watch_gradients(module)
        self._watch_modules()

    @guarded("steps")
    def _try_to_begin_step(self) -> None:
        for collection in self.collection_manager.collections.values():
            if isinstance(collection, Collection):
                collection.resolve_modules(self._module_names)
        self._begin_step()
        self._due_key = (self.collection_manager.version, *(c.name for c in self._due))
        self._gradients.new_step()
        self._num_met.clear()
        self._num_gradients = 0

    @guarded("parameters")
    def _capture_parameters(self, root: nn.Module) -> None:
        self._capture_all(self._due_parameters(root, ""))

    @guarded("gradients")
    def _watch_gradients(self, root: nn.Module) -> None:
        due = self._due_parameters(root, _GRADIENT_PREFIX)
        self._gradients.watch({name: p for name, p in due.items() if p.requires_grad})

    def _due_parameters(self, root: nn.Module, prefix: str) -> dict[str, nn.Parameter]:
        """Return the parameters whose tensor of this prefix is due, by that tensor's name."""
        key = (*self._due_key, root, prefix)
        if key in self._nothing_due:
            return {}
        prefix += f"{self._roots[root]}_"
        named = ((prefix + name, p) for name, p in root.named_parameters())
        due = {name: p for name, p in named if self._plan(name) is not None}
        if not due:
            self._nothing_due.add(key)
        return due

    @guarded("modules")
    def _watch_modules(self) -> None:
        wanted = self._wanted_modules.get(self._due_key)
        if wanted is None:
            wanted = self._wanted_modules[self._due_key] = {
                name: module
                for module, name in self._module_names.items()
                if module not in self._losses and self._any_due(candidate_names(name))
            }
        self._modules.watch_only(wanted)

    @guarded("modules")
    def _on_module_forward(self, name: str, inputs: Any, outputs: Any) -> None:
        if self._due:
            named = self._numbered(f"{name}_input_", inputs)
            self._capture_all(named | self._numbered(f"{name}_output_", outputs))

    def _on_loss(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        self._capture_loss(self._losses[module], inputs, outputs)

    @guarded("losses")
    def _capture_loss(self, name: str, inputs: Any, outputs: Any) -> None:
        if self._due:
            self._capture_all(self._numbered(f"{name}_input_", inputs))
            losses = self._numbered(f"{name}_output_", outputs)
            self._capture_all(losses, member_of=(CollectionKeys.LOSSES,))

    @guarded("gradients")
    def _on_backward_end(self) -> None:
        self._capture_gradients()
        if not self._has_optimizer and self._num_gradients >= self._gradients.num_watched:
            self._step_is_captured()

    @guarded("gradients")
    def _on_optimizer_step(self, optimizer: Optimizer, _: Any, __: Any) -> None:
        if self._record is not None and self._trains_our_parameters(optimizer):
            self._has_optimizer = True
            self._capture_gradients()
            self._step_is_captured()

    # How -----------------------------------------------------------------------------------------

    def _end_step(self) -> None:
        if self._record is not None:
            self._capture_gradients()  # of a backward pass that ended with an exception
        super()._end_step()

    @guarded("gradients")
    def _capture_gradients(self) -> None:
        arrived = self._gradients.take()
        self._num_gradients += len(arrived)
        self._capture_all(arrived)

    def _capture_all(self, tensors: Mapping[str, Tensor], member_of: tuple[str, ...] = ()) -> None:
        wanted: dict[str, tuple[Any, TensorPlan]] = {}
        for name, tensor in tensors.items():
            plan = self._plan(name, member_of)
            if plan is not None:
                wanted[name] = (tensor, plan)
        self._capture(wanted)

    def _numbered(self, prefix: str, value: Any) -> dict[str, Tensor]:
        """Return the tensors in `value` under `{prefix}{i}`; i goes on counting in a step."""
        tensors = tensors_in(value)
        first = self._num_met.get(prefix, 0)
        self._num_met[prefix] = first + len(tensors)
        return {f"{prefix}{first + i}": tensor for i, tensor in enumerate(tensors)}

    def _any_due(self, names: Iterable[str]) -> bool:
        return any(collection.matches(name) for name in names for collection in self._due)

    def _trains_our_parameters(self, optimizer: Optimizer) -> bool:
        known = self._is_ours.get(optimizer)
        if known is None:
            ours = {id(p) for root in self._roots for p in root.parameters()}
            groups = optimizer.param_groups
            known = any(id(p) in ours for group in groups for p in group["params"])
            self._is_ours[optimizer] = known
        return known

    def _backend_of(self, value: Any) -> TensorBackend:
        return self._torch_backend if isinstance(value, Tensor) else super()._backend_of(value)

    def _rank_and_size(self) -> tuple[int, int]:
        return rank_and_size()

    def _shared_run_id(self, run_id: str) -> str:
        return shared_run_id(run_id)

    def _detach(self) -> None:
        self._gradients.unwatch()
        self._modules.watch_only({})
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


_hook: Hook | None = None


def get_hook() -> Hook | None:
    """Return the hook that was made or set last, None without one or where hooks are off."""
    return _hook if hook_enabled() else None


def set_hook(custom_hook: Hook) -> None:
    """Make a hook the one that `get_hook` returns."""
    if not isinstance(custom_hook, Hook):
        raise HookConfigurationError(f"custom_hook={custom_hook!r} must be a Hook")
    global _hook  # noqa: PLW0603 - the original's interface
    _hook = custom_hook


def del_hook() -> None:
    """Forget the hook that `get_hook` returns; the hook itself goes on."""
    global _hook  # noqa: PLW0603 - the original's interface
    _hook = None
