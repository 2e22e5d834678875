"""The hook for PyTorch: `from hook_layer.pytorch import Hook`.

The page `docs/reference/frameworks.md` has the names of tensors and the order of events in a step.
"""

from __future__ import annotations

import logging
from collections import ChainMap
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from hook_layer.frameworks import TORCH

try:
    from torch import Tensor, nn
    from torch.optim.optimizer import Optimizer
except ModuleNotFoundError as error:
    raise TORCH.missing() from error

from hook_layer.capture.reductions import ReductionConfig
from hook_layer.configuration.collections import CollectionKeys
from hook_layer.configuration.hook_setup import HookSetup
from hook_layer.configuration.save_config import SaveConfig, SaveConfigMode
from hook_layer.core.hook import BaseHook
from hook_layer.core.original_hook import OriginalHook, missing_name
from hook_layer.current_hook import CurrentHook
from hook_layer.errors import TrainingStoppedError
from hook_layer.format.modes import ModeKeys as modes  # noqa: N813 - the original's name
from hook_layer.guard import guarded
from hook_layer.pytorch.calls import tensors_in
from hook_layer.pytorch.collections import DEFAULTS, Collection
from hook_layer.pytorch.creation_lines import remember_layers
from hook_layer.pytorch.events import TorchEvents
from hook_layer.pytorch.gradient_stops import GradientStops
from hook_layer.pytorch.loop_state import LoopState
from hook_layer.pytorch.losses import LossTracer
from hook_layer.pytorch.modules import RegisteredModules
from hook_layer.pytorch.overridden_methods import OverriddenMethods, named_module
from hook_layer.pytorch.ranks import TorchRanks
from hook_layer.pytorch.steps import FollowedSteps
from hook_layer.pytorch.tensor_source import TorchSource
from hook_layer.pytorch.torch_capture import TorchCapture
from hook_layer.pytorch.trainer_driver import TrainerDriver
from hook_layer.report import HookReport

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

logger = logging.getLogger("stepwatch")

_ONE_WRITER: Final = "one"


class _TorchHook(BaseHook):
    """A hook with the parts for PyTorch, which share `loop_state`."""

    _overridden = OverriddenMethods()

    def __init__(self, setup: HookSetup) -> None:
        options = setup.options
        self._registered = registered = RegisteredModules()
        self._ranks = ranks = TorchRanks(registered)
        is_alone = setup.include_workers == "one" or (
            setup.include_workers == "auto" and not options.statistics
        )
        make_source = partial(
            TorchSource,
            registered=registered,
            queue_bytes=int(options.queue_bytes),
            is_only_writer=is_alone,
        )
        super().__init__(setup, workers=ranks, source=make_source)
        # If only the chief writes, or if it is in a session, the URI may differ between ranks.
        has_one_name = self.session.all_write and not self.session.place.is_in_session
        ranks.form_group(self.session.store.uri if has_one_name else _ONE_WRITER)
        source = cast("TorchSource", self.tensor_capture.source)
        self.loop_state = loop = LoopState(self, registered, self._overridden, options.queue_bytes)
        self._tensors = loop.tensors
        # The parts subscribe to events in this order.
        self._torch_capture = TorchCapture(self, loop, source)
        self._losses = LossTracer(self, loop)
        self._gradient_stops = GradientStops(self, loop)
        self.loop = TorchEvents(self, loop, ranks)
        self.trainer = TrainerDriver(self, loop, self.loop, self._losses)


class Hook(OriginalHook, _TorchHook):
    """Captures tensors of a PyTorch training job.

    The arguments are those of `hook_layer.core.original_hook.OriginalHook`. `losses` are always
    saved. With `include_workers="auto"` up to 16 ranks of torch.distributed write statistics, and
    rank 0 writes values, too.
    """

    _defaults = DEFAULTS
    current: ClassVar[CurrentHook[Hook]]
    if TYPE_CHECKING:

        def get_collection(self, name: str, create: bool = True) -> Collection: ...  # noqa: D102

    _may_attach = False  # to a model that the script does not register

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._overridden = OverriddenMethods.of(cls, Hook)

    def attach_to_first_model(self) -> None:
        """Watch the first model that trains, unless the script registers one before."""
        if self.is_active:
            from hook_layer.pytorch.unchanged import attach_to_first_model  # noqa: PLC0415 - a cycle

            self._may_attach = True
            attach_to_first_model(self)

    def register_module(self, module: nn.Module) -> None:
        """Watch a model: each of its forward passes is a step.

        Raises:
            HookConfigurationError: It is not a module, or is already registered.
        """
        if not (self._may_attach and self._is_attached_to(module)):
            self.watch_model(module)

    def watch_model(self, module: nn.Module) -> None:
        """Same as `register_module`, for a model that the script does not register.

        Raises:
            HookConfigurationError: It is not a module, or is already registered.
        """
        model = self._registered.add_model(module)
        if self.is_active:
            is_overridden = self._overridden.begins_steps
            self.loop.watch_model(model, self._call_forward_pre_hook if is_overridden else None)
            self.loop.keep(self._overridden.register(self, model, self._registered))

    def register_hook(self, module: nn.Module) -> None:
        """Same as `register_module`."""
        self.register_module(module)

    def register_loss(self, loss_module: nn.Module) -> None:
        """Capture the output of a loss module in the collection `losses`.

        Raises:
            HookConfigurationError: It is not a module.
        """
        loss = self._registered.add_loss(loss_module)
        if self.is_active and loss is not None:
            self.loop.watch_loss(loss)
            self.loop.keep(self._overridden.register_module(self, loss))

    def register_optimizer(self, optimizer: Optimizer) -> None:
        """Count one step per step of all registered optimizers.

        Forward passes whose gradients are accumulated are then one step, see
        `hook_layer.pytorch.steps`.

        Args:
            optimizer: An optimizer, or a wrapper with an attribute `optimizer`.

        Raises:
            HookConfigurationError: It is not an optimizer.
        """
        self.loop_state.steps.add(optimizer)

    def _is_attached_to(self, module: nn.Module) -> bool:
        """Return whether the hook found this model by itself; release any other found model."""
        from hook_layer.pytorch.unchanged import leave_to_script  # noqa: PLC0415 - a cycle

        self._may_attach = False
        if not leave_to_script(self) or self._registered.has_model(module):
            return bool(self._registered.models)
        logger.warning(
            "the script registers a model after another one trained: from step %d on the hook "
            "watches only the registered one; register it earlier",
            self.step + 1,
        )
        losses, steps = list(self._registered.losses), self.loop_state.steps
        self.loop.release_models()
        self.loop_state.steps = steps
        for loss in losses:
            self.register_loss(loss)
        return False

    def follow_optimizers(self) -> None:
        """Count one step per step of the optimizers that train the model, see `FollowedSteps`."""
        self.loop_state.steps = FollowedSteps()

    def record_loss(
        self, outputs: Tensor, targets: Tensor, loss: Tensor, name: str = "Loss"
    ) -> None:
        """Save a loss that the script computes itself, and the tensors that it compares.

        Call it before `loss.backward()`. From then on, the hook no longer saves losses that it
        finds by itself.

        Args:
            outputs: Outputs of the model, [B, ...].
            targets: Targets, [B, ...].
            loss: The loss, one element.
            name: Prefix of the tensors: `{name}_input_0`, `{name}_input_1` and `{name}_output_0`.
        """
        self.own_tensors.has_losses = True
        self._losses.capture(name, (outputs, targets), loss)

    def record_tensor_value(self, tensor_name: str, tensor_value: Tensor) -> None:
        """Capture the value of a functional loss, e.g. `F.mse_loss(...)`, as `<name>_output_0`."""
        self.own_tensors.has_losses = True
        self._losses.capture(tensor_name, (), tensor_value)

    def count_parameters(self, model: nn.Module) -> int:
        """Return the number of trainable elements of a model, and log it for each parameter."""
        counts = {name: p.numel() for name, p in model.named_parameters() if p.requires_grad}
        for name, count in counts.items():
            logger.info("%s has %d elements", name, count)
        logger.info("%d elements are trained", sum(counts.values()))
        return sum(counts.values())

    # Methods of the original that torch calls, see `hook_layer.pytorch.overridden_methods` --------

    def forward_pre_hook(self, module: nn.Module, inputs: Any) -> None:
        """Begin a step and capture the parameters of a registered model."""
        if module in self._registered.models:
            self.loop.on_forward(module, inputs, None)

    @property
    def module_maps(self) -> Mapping[nn.Module, str]:
        """The names of registered modules and losses, for subclasses written for the original."""
        return ChainMap(self._registered.names, self._registered.losses)

    def _call_forward_pre_hook(self, model: nn.Module, inputs: Any, _: Any) -> None:
        with named_module(model, self.module_maps.get(model)):
            self.forward_pre_hook(model, inputs)

    def _call_forward_hook(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        with named_module(module, self.module_maps.get(module)):
            self.forward_hook(module, inputs, outputs)

    def forward_hook(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        """Capture inputs and outputs of a module in a registered model."""
        name = self._registered.names.get(module) or self._registered.losses.get(module)
        if name is not None and self._torch_capture.takes_modules:
            self._write_inputs(name, inputs)
            self._write_outputs(name, outputs)

    def _write_inputs(self, name: str, inputs: Any) -> None:
        """Capture inputs as `<name>_input_0` and so on, except those of losses."""
        self._write(name, f"{name}_input_", inputs)

    def _write_outputs(self, name: str, outputs: Any) -> None:
        """Capture outputs as `<name>_output_0` and so on, except those of losses."""
        self._write(name, f"{name}_output_", outputs)

    @guarded("modules")
    def _write(self, name: str, prefix: str, values: Any) -> None:
        if self._torch_capture.takes_modules and name not in self._registered.losses.values():
            self._tensors.capture(self._tensors.numbered(prefix, tensors_in(values)))

    def backward_hook(self, tname: str) -> Callable[[Tensor], None]:
        """Return a hook for `Tensor.register_hook` that captures `gradient/<tname>`."""

        def back(gradient: Tensor) -> None:  # a copied model refers to this hook, not to a copy
            self._capture_gradient(tname, gradient)

        return back

    @guarded("gradients")
    def _capture_gradient(self, name: str, gradient: Tensor) -> None:
        if self.collector.due:
            self._tensors.capture({f"gradient/{name}": gradient})


remember_layers()  # scripts create their models before the hook, or after it
Hook.current = CurrentHook(Hook)
get_hook = Hook.current.get_hook
set_hook = Hook.current.set_hook
del_hook = Hook.current.del_hook


def __getattr__(name: str) -> Any:
    raise missing_name(__name__, name)
