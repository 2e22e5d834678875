"""Captures parameters, gradients, module calls and optimizer state of registered models."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

from hook_layer.configuration.collections import Collection, CollectionKeys
from hook_layer.configuration.layer_collections import may_match, resolve_layers
from hook_layer.configuration.optimizer_collection import keep_apart
from hook_layer.core import events
from hook_layer.core.hook import BaseHook
from hook_layer.errors import HookConfigurationError
from hook_layer.guard import guarded
from hook_layer.process.script_lines import script_line
from hook_layer.pytorch.activation_functions import ActivationFunctions
from hook_layer.pytorch.amp import parameters_of, unscaled
from hook_layer.pytorch.calls import CompiledInputs, ModuleHooks
from hook_layer.pytorch.collections import included, layer_kinds, of_functions
from hook_layer.pytorch.creation_lines import CREATED
from hook_layer.pytorch.loop_state import LoopState, TorchPart
from hook_layer.pytorch.module_calls import ModuleCalls
from hook_layer.pytorch.parameters import DueParameters
from hook_layer.pytorch.steps import graph_task_id
from hook_layer.pytorch.tensor_source import TorchSource

__all__ = ["TorchCapture"]

logger = logging.getLogger("stepwatch")

_MOST_CALLS: Final = 8
"""Maximum captured calls of a function per module and step: cells make one per time step."""


class TorchCapture(TorchPart):
    """Captures the tensors of registered models in a step."""

    def __init__(self, hook: BaseHook, loop: LoopState, source: TorchSource) -> None:
        super().__init__(hook, loop)
        self._gradients = loop.gradients
        self._source = source
        self._parameters = DueParameters(loop.registered, hook.collector)
        self._called_models: set[nn.Module] = set()
        self._with_state: set[int] = set()
        self._optimizers: set[int] = set()  # ids, because some are not hashable
        self._num_kinds = 0
        self._modules = ModuleHooks(self._on_module_forward)
        self._calls = ModuleCalls(loop.tensors, self.failures)
        self._activations = ActivationFunctions(self._on_activation, self.failures)
        self._due_modules: dict[tuple[Any, ...], set[nn.Module]] = {}
        self._has_warned_of_unseen_modules = False
        self._subscribe()

    def _subscribe(self) -> None:
        subscribe = self.events.subscribe
        subscribe(events.ModelsChange, self._forget_due, "modules")
        subscribe(events.FirstPassBegins, self._on_first_pass, "modules")
        subscribe(events.ModelCompiles, self._on_compile, "modules")
        subscribe(events.CollectionsResolve, self._resolve_collections, "modules of collections")
        subscribe(events.StepBegins, self._on_step_begins, "steps")
        subscribe(events.StepBegins, self._on_step_in_closure, "optimizer variables")
        subscribe(events.StepBegins, self._watch_modules, "modules")
        subscribe(events.PassBegins, self._capture_parameters, "parameters")
        subscribe(events.PassBegins, self._watch_gradients, "gradients")
        subscribe(events.PassBegins, self._note_called, "steps")
        subscribe(events.PassBegins, self._watch_functions, "functions")
        subscribe(events.PassBegins, self._gather_calls, "modules")
        subscribe(events.PassEnds, self._on_pass_ends, "modules")
        subscribe(events.BackwardBegins, self._on_pass_ends, "modules")
        subscribe(events.BackwardEnds, self._on_backward_ends, "gradients")
        subscribe(events.OptimizerBegins, self._capture_gradients_of, "gradients")
        subscribe(events.OptimizerBegins, self._on_optimizer_begins, "optimizer variables")
        subscribe(events.StepEnds, self._capture_last_calls, "modules")
        subscribe(events.StepEnds, self._capture_last_gradients, "gradients")
        subscribe(events.StepRestarts, self._on_step_restarts, "steps")
        subscribe(events.SavingPauses, self._stop_watching, "modules")
        subscribe(events.ModelsRelease, self._on_release, "modules")

    # A step --------------------------------------------------------------------------------------

    def _resolve_collections(self, event: events.CollectionsResolve) -> None:
        """Resolve the collections for the registered models."""
        manager, names = event.manager, self._registered.names
        keep_apart(manager)
        resolve_layers(manager, names, event.on_mistake)
        if len(names) != self._num_kinds:
            self._num_kinds = len(names)
            manager.layers.update(layer_kinds(names))
            for module, name in names.items():
                manager.note_line("layers", name, CREATED.line_of(module))

    def _on_step_begins(self, _: events.StepBegins) -> None:
        self._gradients.begin_step()
        self._parameters.check_again()
        self._called_models.clear()
        self._tensors.begin_step()
        self._with_state.clear()

    @property
    def _is_saved(self) -> bool:
        return self._recorder.record is not None and bool(self._collector.due)

    def _capture_last_calls(self, _: events.StepEnds) -> None:
        """Capture the calls of modules that no end of a pass has captured."""
        if self._is_saved:
            self._calls.pass_ends()
            if self._loop.has_compiled and not self._has_warned_of_unseen_modules:
                self._warn_of_unseen_modules()

    def _capture_last_gradients(self, _: events.StepEnds) -> None:
        """Capture the gradients that neither a backward pass nor an optimizer has captured."""
        if self._is_saved:
            self._gradients.backward_ends()  # of a backward pass that raised an error
            self._capture_gradients()

    def _on_step_restarts(self, _: events.StepRestarts) -> None:
        """Release the tensors that the step collected."""
        self._gradients.take()
        self._calls.forget()
        self._source.forget_statistics()

    # A forward pass ------------------------------------------------------------------------------

    def _gather_calls(self, _: events.PassBegins) -> None:
        if not self._loop.has_compiled:
            self._calls.pass_begins()

    def _on_pass_ends(self, _: events.PassEnds | events.BackwardBegins) -> None:
        self._calls.pass_ends()
        self._activations.stop()

    def _on_first_pass(self, _: events.FirstPassBegins) -> None:
        self._modules.watch_only(self._modules_of(included(self._collector.manager)))

    def _watch_modules(self, _: events.StepBegins) -> None:
        """Set hooks exactly on the modules that are due in this step."""
        self._modules.watch_only(self._current_modules())

    def _on_compile(self, _: events.ModelCompiles) -> None:
        """Keep the hooks of all modules that may become due: torch.compile is about to see them."""
        manager = self._collector.manager
        with suppress(HookConfigurationError):  # raised again when the step begins
            self._resolve_collections(events.CollectionsResolve(manager, None))
        self._modules.keep(self._modules_of(included(manager)))

    def _current_modules(self) -> set[nn.Module]:
        key = self._collector.due_key
        due = self._due_modules.get(key)
        if due is None:
            due = self._due_modules[key] = self._modules_of(self._collector.due)
        return due

    def _modules_of(self, collections: Iterable[Collection]) -> set[nn.Module]:
        if self._loop.overridden.captures_modules:
            return set()
        return self._registered.named_like(lambda name: may_match(collections, name))

    @property
    def takes_modules(self) -> bool:
        """Whether a module call now belongs to a saved step."""
        is_outside = self._loop.steps.is_outside_steps
        return bool(self._collector.due) and not is_outside and graph_task_id() == -1

    @guarded("modules")
    def _on_module_forward(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        if self.takes_modules:
            is_compiled = isinstance(inputs, CompiledInputs)
            name = self._registered.names[module]
            self._calls.add(name, inputs, outputs, is_compiled=is_compiled)

    def _watch_functions(self, event: events.PassBegins) -> None:
        if of_functions(self._collector.due_key):
            self._activations.look(event.model)

    @guarded("functions")
    def _on_activation(
        self, kind: str, called: list[nn.Module], given: Tensor | None, result: Tensor
    ) -> None:
        if not self._collector.due or graph_task_id() != -1:
            return
        names = self._registered.names
        module = next((names[m] for m in reversed(called) if m in names), None)
        due = of_functions(self._collector.due_key)
        for side, tensor in (("input", given), ("output", result)):
            collection = f"{kind}_{side}"
            if module is None or tensor is None or collection not in due:
                continue
            prefix = f"{module}/{collection}/"
            if self._tensors.count(prefix) < _MOST_CALLS:
                named = self._tensors.numbered(prefix, [tensor])
                self._tensors.capture(named, member_of=(collection,))

    # Parameters, gradients and optimizer state ---------------------------------------------------

    def _capture_parameters(self, event: events.PassBegins) -> None:
        """Capture the parameters of a model, once per step."""
        if event.model not in self._called_models:
            self._adopt_unregistered(event.model)
            self._recorder.capture(self._parameters.parameters(event.model))

    def _watch_gradients(self, event: events.PassBegins) -> None:
        """Watch the gradients of a model, once per step."""
        is_ours = not self._loop.overridden.captures_gradients
        if is_ours and event.model not in self._called_models:
            self._gradients.watch(self._parameters.gradients(event.model))

    def _note_called(self, event: events.PassBegins) -> None:
        self._called_models.add(event.model)

    def _adopt_unregistered(self, model: nn.Module) -> None:
        found = self._registered.adopt_unregistered(model)
        if found:
            self._parameters.forget()
            logger.warning(
                "%.500s of %s get gradients but are in a plain list or dict, so "
                "parameters() and state_dict() lack them; use nn.ModuleList, nn.ModuleDict "
                "or nn.ParameterList",
                ", ".join(found),
                self._registered.models[model],
            )

    def _on_backward_ends(self, _: events.BackwardEnds) -> None:
        self._capture_gradients()
        self._source.send_statistics()

    def _capture_gradients_of(self, event: events.OptimizerBegins) -> None:
        """Capture gradients that no backward pass announced, and unscale scaled ones."""
        if not event.has_closure and self._recorder.record is not None:
            self._capture_gradients(event.optimizer)

    def _capture_gradients(self, optimizer: Optimizer | None = None) -> None:
        is_scaling, gradients = bool(self._loop.scaling.scalers), self._gradients
        if is_scaling and optimizer is None:
            return
        only = parameters_of(optimizer) if is_scaling and optimizer is not None else None
        found = gradients.take(only)
        if optimizer is not None and not gradients.all_announced:
            found |= self._unannounced_gradients(optimizer)
        if found and is_scaling and optimizer is not None:
            found = unscaled(optimizer, found)
        if found:
            self._tensors.capture(found)

    def _unannounced_gradients(self, optimizer: Optimizer) -> dict[str, Tensor]:
        """Return gradients that an optimizer is about to use and no backward pass reported."""
        if self._loop.overridden.captures_gradients:
            return {}
        chosen = {id(parameter) for parameter in parameters_of(optimizer)}
        self._parameters.check_again()  # FSDP2 has whole parameters during the forward pass
        due: dict[str, nn.Parameter] = {}
        for model in self._called_models:
            due |= self._parameters.gradients(model)
        return self._gradients.find({name: p for name, p in due.items() if id(p) in chosen})

    def _on_optimizer_begins(self, event: events.OptimizerBegins) -> None:
        # The closure may contain the forward pass that begins a step.
        is_in_step = not event.has_closure or self._loop.steps.begins_before_closure
        if is_in_step and self._recorder.record is not None:
            self._note_line(event.optimizer)
            self._capture_optimizer_state(event.optimizer)

    def _note_line(self, optimizer: Optimizer) -> None:
        """Note where the script creates an optimizer; if that is unknown, where it steps."""
        if id(optimizer) not in self._optimizers:
            name = f"{type(optimizer).__name__}_{len(self._optimizers)}"
            line = CREATED.line_of(optimizer) or script_line()
            self._collector.manager.note_line("optimizers", name, line)
            self._optimizers.add(id(optimizer))

    def _on_step_in_closure(self, event: events.StepBegins) -> None:
        if event.optimizer is not None:
            self._capture_optimizer_state(event.optimizer)

    def _capture_optimizer_state(self, optimizer: Optimizer) -> None:
        """Capture the state of an optimizer, once per step."""
        is_due = CollectionKeys.OPTIMIZER_VARIABLES in self._collector.due_key
        if is_due and id(optimizer) not in self._with_state:
            self._with_state.add(id(optimizer))
            named = self._registered.all_named_parameters()
            self._tensors.capture(_state_tensors(optimizer, named))

    # Models --------------------------------------------------------------------------------------

    def _forget_due(self, _: events.ModelsChange | events.ModelsRelease) -> None:
        """Forget the due parts of all models."""
        self._collector.manager.resolve_again()
        self._parameters.forget()
        self._called_models.clear()
        self._due_modules.clear()

    def _stop_watching(self, _: events.SavingPauses | events.ModelsRelease) -> None:
        self._gradients.unwatch()
        self._activations.stop()
        self._calls.forget()
        self._modules.watch_only(frozenset())

    def _on_release(self, event: events.ModelsRelease) -> None:
        """Release all models, and remove the hooks that torch.compile has not seen."""
        if event.is_final:
            self._modules.stop()
        self._stop_watching(event)
        self._forget_due(event)

    def _warn_of_unseen_modules(self) -> None:
        """Log once which parts of a compiled model the hook did not see in a step."""
        names = sorted(self._registered.names[module] for module in self._current_modules())
        unseen = [name for name in names if not self._tensors.count(f"{name}_output_")]
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
