"""Captures parameters, gradients, module calls and optimizer state of registered models."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

from hook_layer.configuration.collection_manager import CollectionManager, OnMistake
from hook_layer.configuration.collections import Collection, CollectionKeys
from hook_layer.configuration.layer_collections import may_match, resolve_layers
from hook_layer.configuration.optimizer_collection import keep_apart
from hook_layer.core.collector import Collector
from hook_layer.core.recorder import Recorder
from hook_layer.core.state import HookState, Part
from hook_layer.errors import HookConfigurationError
from hook_layer.guard import guarded
from hook_layer.pytorch.activation_functions import ActivationFunctions
from hook_layer.pytorch.amp import LossScaling, parameters_of, unscaled
from hook_layer.pytorch.calls import CompiledInputs, ModuleHooks
from hook_layer.pytorch.collections import included, of_functions
from hook_layer.pytorch.due_parameters import DueParameters
from hook_layer.pytorch.gradients import GradientReader
from hook_layer.pytorch.module_calls import ModuleCalls
from hook_layer.pytorch.modules import RegisteredModules
from hook_layer.pytorch.overridden_methods import OverriddenMethods
from hook_layer.pytorch.step_tensors import StepTensors
from hook_layer.pytorch.steps import ModeTracker, is_recomputing
from hook_layer.pytorch.tensor_source import TorchSource
from hook_layer.pytorch.transforms import outside_of_transforms

__all__ = ["TorchCapture"]

logger = logging.getLogger("stepwatch")

_MOST_CALLS: Final = 8
"""Maximum captured calls of a function per module and step: cells make one per time step."""


class TorchCapture(Part):
    """Captures the tensors of registered models in a step.

    Attributes:
        registered: The models.
        collector: Decides what is saved in the open step.
        recorder: Records the tensors.
        modes: Which forward passes belong to steps.
        tensors: Names and captures the tensors.
        gradients: The gradients of the step.
        has_compiled: Whether torch.compile has compiled a model.
        has_new_models: Whether a model was registered since modules got hooks.
        overridden: Which tensors a subclass of the hook captures.
    """

    def __init__(  # noqa: PLR0917 - the parts that it uses
        self,
        state: HookState,
        registered: RegisteredModules,
        collector: Collector,
        recorder: Recorder,
        source: TorchSource,
        modes: ModeTracker,
    ) -> None:
        super().__init__(state)
        self.registered = registered
        self.collector = collector
        self.recorder = recorder
        self.modes = modes
        self._source = source
        collector.before_due(self._prepare_collections)
        self.tensors = StepTensors(collector, recorder)
        self.gradients = GradientReader()
        self.has_compiled = self.has_new_models = False
        self.overridden = OverriddenMethods()
        self._parameters = DueParameters(registered, collector)
        self._called_models: set[nn.Module] = set()
        self._with_state: set[int] = set()
        self._modules = ModuleHooks(self._on_module_forward)
        self._calls = ModuleCalls(self.tensors, self.failures)
        self._activations = ActivationFunctions(self._on_activation)
        self._due_modules: dict[tuple[Any, ...], set[nn.Module]] = {}
        self._has_warned_of_unseen_modules = False

    # A step --------------------------------------------------------------------------------------

    def _prepare_collections(
        self, manager: CollectionManager, on_mistake: OnMistake | None
    ) -> None:
        """Resolve the collections for the registered models."""
        keep_apart(manager)
        resolve_layers(manager, self.registered.names, on_mistake)

    def begin_step(self) -> None:
        """Note that a saved step begins."""
        self.gradients.begin_step()
        self._parameters.look_again()
        self._called_models.clear()
        self.tensors.begin_step()
        self._with_state.clear()

    def end_step(self) -> None:
        """Capture the remaining tensors of the step."""
        self._calls.pass_ends()
        self.gradients.backward_ends()  # of a backward pass that raised an error
        self._warn_of_unseen_modules()

    def discard_step(self) -> None:
        """Release the tensors that the step collected."""
        self.gradients.take()
        self._calls.forget()
        self._source.forget_statistics()

    @guarded("statistics")
    def send_statistics(self) -> None:
        """Send the statistics that devices computed to the host."""
        self._source.send_statistics()

    # A forward pass ------------------------------------------------------------------------------

    def begin_pass(self, model: nn.Module) -> None:
        """Capture the parameters of a model whose forward pass begins, and watch the pass."""
        with outside_of_transforms():
            self._capture_parameters_of(model)
        self._look_at_functions(model)
        self._gather_calls()

    @guarded("modules")
    def _gather_calls(self) -> None:
        if not self.has_compiled:
            self._calls.pass_begins()

    @property
    def awaits_pass_end(self) -> bool:
        """Whether some tensors are captured when the pass ends."""
        is_watching = self._modules.is_watching or self._activations.is_looking
        return is_watching and not self.has_compiled

    @guarded("modules")
    def end_pass(self) -> None:
        """Capture the tensors of the pass that ends."""
        self._calls.pass_ends()
        self._activations.stop()

    @guarded("modules")
    def watch_modules(self) -> None:
        """Set hooks exactly on the modules that are due in this step."""
        if self.has_new_models:
            # Modules that torch.compile is about to see must be watched by now, due or not.
            self.has_new_models = False
            self._modules.watch_only(self._modules_of(included(self.collector.manager)))
        elif self.collector.due or self._modules.is_watching:
            self._modules.watch_only(self._current_modules())

    def note_compilation(self) -> None:
        """Keep the hooks of all modules that may become due: torch.compile is about to see them."""
        self.has_compiled = True
        with suppress(HookConfigurationError):  # raised again when the step begins
            self._prepare_collections(self.collector.manager, None)
        self._modules.keep(self._modules_of(included(self.collector.manager)))

    def _current_modules(self) -> set[nn.Module]:
        key = self.collector.due_key
        due = self._due_modules.get(key)
        if due is None:
            due = self._due_modules[key] = self._modules_of(self.collector.due)
        return due

    def _modules_of(self, collections: Iterable[Collection]) -> set[nn.Module]:
        if self.overridden.captures_modules:
            return set()
        return self.registered.named_like(lambda name: may_match(collections, name))

    @property
    def takes_modules(self) -> bool:
        """Whether a module call now belongs to a saved step."""
        return bool(self.collector.due) and not self.modes.is_outside_steps and not is_recomputing()

    @guarded("modules")
    def _on_module_forward(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        if self.takes_modules:
            is_compiled = isinstance(inputs, CompiledInputs)
            name = self.registered.names[module]
            self._calls.add(name, inputs, outputs, is_compiled=is_compiled)

    @guarded("functions")
    def _look_at_functions(self, model: nn.Module) -> None:
        if of_functions(self.collector.due_key):
            self._activations.look(model)

    @guarded("functions")
    def _on_activation(
        self, kind: str, called: list[nn.Module], given: Tensor | None, result: Tensor
    ) -> None:
        if not self.collector.due or is_recomputing():
            return
        names = self.registered.names
        module = next((names[m] for m in reversed(called) if m in names), None)
        due = of_functions(self.collector.due_key)
        for side, tensor in (("input", given), ("output", result)):
            collection = f"{kind}_{side}"
            if module is None or tensor is None or collection not in due:
                continue
            prefix = f"{module}/{collection}/"
            if self.tensors.count(prefix) < _MOST_CALLS:
                named = self.tensors.numbered(prefix, tensor)
                self.tensors.capture(named, member_of=(collection,))

    # Parameters, gradients and optimizer state ---------------------------------------------------

    def _capture_parameters_of(self, model: nn.Module) -> None:
        """Capture a model's parameters and watch their gradients, once per step."""
        if model not in self._called_models:
            self._called_models.add(model)
            self._adopt_unregistered(model)
            self._capture_parameters(model)
            self._watch_gradients(model)

    @guarded("parameters")
    def _adopt_unregistered(self, model: nn.Module) -> None:
        found = self.registered.adopt_unregistered(model)
        if found:
            self._parameters.forget()
            logger.warning(
                "%.500s of %s get gradients but are in a plain list or dict, so "
                "parameters() and state_dict() lack them; use nn.ModuleList, nn.ModuleDict "
                "or nn.ParameterList",
                ", ".join(found),
                self.registered.models[model],
            )

    @guarded("parameters")
    def _capture_parameters(self, model: nn.Module) -> None:
        self.recorder.capture(self._parameters.parameters(model))

    @guarded("gradients")
    def _watch_gradients(self, model: nn.Module) -> None:
        if self.overridden.captures_gradients:
            return
        due = self._parameters.gradients(model)
        self.gradients.watch({name: parameter for name, (parameter, _) in due.items()})

    @guarded("gradients")
    def capture_gradients(self, scaling: LossScaling, optimizer: Optimizer | None = None) -> None:
        """Capture new gradients; unscale and capture scaled ones before the optimizer steps."""
        if not scaling.is_scaling:
            self.tensors.capture(self.gradients.take() | self._found_gradients(optimizer))
        elif optimizer is not None:
            arrived = self.gradients.take(parameters_of(optimizer))
            gradients = arrived | self._found_gradients(optimizer)
            self.tensors.capture(unscaled(optimizer, gradients))

    def _found_gradients(self, optimizer: Optimizer | None) -> dict[str, Tensor]:
        """Return gradients that an optimizer is about to use and no backward pass reported."""
        if optimizer is None or self.gradients.all_announced:
            return {}
        chosen = {id(parameter) for parameter in parameters_of(optimizer)}
        self._parameters.look_again()  # FSDP2 has whole parameters during the forward pass
        due = [self._parameters.gradients(model) for model in self._called_models]
        named = {name: p for each in due for name, (p, _) in each.items()}
        return self.gradients.find({name: p for name, p in named.items() if id(p) in chosen})

    @guarded("optimizer variables")
    def capture_optimizer_state(self, optimizer: Optimizer) -> None:
        """Capture the state of an optimizer, once per step."""
        is_due = CollectionKeys.OPTIMIZER_VARIABLES in self.collector.due_key
        if is_due and id(optimizer) not in self._with_state:
            self._with_state.add(id(optimizer))
            named = self.registered.all_named_parameters()
            self.tensors.capture(_state_tensors(optimizer, named))

    # Models --------------------------------------------------------------------------------------

    def add_model(self) -> None:
        """Note that a model was registered."""
        self.forget_due()
        self.has_new_models = True

    def forget_due(self) -> None:
        """Forget the due parts of all models."""
        self._parameters.forget()
        self._called_models.clear()
        self._due_modules.clear()

    def stop_watching(self) -> None:
        """Stop watching gradients and functions: the step is not saved."""
        self.gradients.unwatch()
        self._activations.stop()
        self._calls.forget()

    def release_models(self) -> None:
        """Release all models, and remove the hooks that torch.compile has not seen."""
        self.stop_watching()
        self._modules.watch_only(frozenset())
        self.forget_due()

    def stop(self) -> None:
        """Remove all hooks."""
        self._modules.stop()
        self.release_models()

    @guarded("modules")
    def _warn_of_unseen_modules(self) -> None:
        """Log once which parts of a compiled model the hook did not see in a step."""
        if not self.has_compiled or not self.collector.due or self._has_warned_of_unseen_modules:
            return
        names = sorted(self.registered.names[module] for module in self._current_modules())
        unseen = [name for name in names if not self.tensors.count(f"{name}_output_")]
        if unseen:
            self._has_warned_of_unseen_modules = True
            logger.warning(
                "inputs and outputs of %.500s are not saved, because the compiled model "
                "does not call them. If it was compiled before registration, call "
                "torch.compiler.reset().",
                ", ".join(unseen),
            )


def _state_tensors(
    optimizer: Optimizer, named: Iterable[tuple[str, nn.Parameter]]
) -> dict[str, Tensor]:
    """Return the tensors of an optimizer's state by name, for parameters with names."""
    names: dict[int, list[str]] = {}
    for name, parameter in named:
        names.setdefault(id(parameter), []).append(name)
    found = {}
    for parameter in parameters_of(optimizer):
        state = optimizer.state.get(parameter) or {}
        tensors = {key: value for key, value in state.items() if isinstance(value, Tensor)}
        for name in names.get(id(parameter), ()):
            prefix = f"{CollectionKeys.OPTIMIZER_VARIABLES}/{name}/"
            found.update({prefix + key: value for key, value in tensors.items()})
    return found
