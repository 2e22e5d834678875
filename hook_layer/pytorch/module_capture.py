"""What the hook for PyTorch captures of what goes into modules and functions, and comes out."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

from torch import Tensor, nn

from hook_layer.collections import Collection
from hook_layer.configuration.hook_setup import HookSetup
from hook_layer.errors import HookConfigurationError
from hook_layer.guard import guarded
from hook_layer.layer_collections import may_match
from hook_layer.pytorch.activation_functions import ActivationFunctions
from hook_layer.pytorch.calls import CompiledInputs
from hook_layer.pytorch.capturing import TorchCapture
from hook_layer.pytorch.collections import included, of_functions
from hook_layer.pytorch.module_calls import ModuleCalls
from hook_layer.pytorch.module_hooks import ModuleHooks
from hook_layer.pytorch.steps import StepBounds, is_recomputing

__all__ = ["ModuleCapture"]

logger = logging.getLogger("stepwatch")

_MOST_CALLS: Final = 8
"""Calls of a function in one module and step that are captured: cells call theirs at each time."""


class ModuleCapture(TorchCapture):
    """A hook that captures inputs and outputs of modules, and of activations that are functions.

    Args:
        setup: What the hook is made of.
    """

    def __init__(self, setup: HookSetup) -> None:
        super().__init__(setup)
        self._steps = StepBounds()
        self._modules = ModuleHooks(self._on_module_forward)
        self._pass_end = ModuleHooks(self._on_pass_end)
        self._calls = ModuleCalls(self._tensors, self.failures)
        self._activations = ActivationFunctions(self._on_activation)
        self._wanted_modules: dict[tuple[Any, ...], set[nn.Module]] = {}
        self._needs_outputs = False  # also of compiled models
        self._has_new_models = self._has_compiled = self._warned_of_unseen_modules = False

    # Where the hook looks in ---------------------------------------------------------------------

    @guarded("modules")
    def _on_module_forward(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        if self._takes_modules():
            is_compiled = isinstance(inputs, CompiledInputs)
            name = self._registered.names[module]
            self._calls.add(name, inputs, outputs, is_compiled=is_compiled)

    @guarded("modules")
    def _on_pass_end(self, model: nn.Module, inputs: Any, outputs: Any) -> None:  # noqa: ARG002
        """Capture what the forward pass of a model that is due has shown."""
        if not is_recomputing():
            self._pass_end.watch_only(frozenset())
            self._calls.pass_ends()
            self._activations.stop()

    def _begin_pass(self, model: nn.Module) -> None:
        """Gather the calls of a pass of a model that begins, in a step that is due."""
        if self._awaits_pass_end():
            self._pass_end.watch_only({model})
            self._calls.pass_begins()

    def _awaits_pass_end(self) -> bool:
        if self._has_compiled:
            return self._needs_outputs
        return self._needs_outputs or self._modules.is_watching or self._activations.is_looking

    def _takes_modules(self) -> bool:
        """Return whether the call of a module belongs to a step that is saved."""
        return bool(self._due) and not self._steps.is_aside and not is_recomputing()

    @guarded("functions")
    def _on_activation(
        self, kind: str, called: list[nn.Module], given: Tensor | None, result: Tensor
    ) -> None:
        if not self._due or is_recomputing():
            return
        names = self._registered.names
        module = next((names[m] for m in reversed(called) if m in names), None)
        due = of_functions(self._due_key)
        for side, tensor in (("input", given), ("output", result)):
            collection = f"{kind}_{side}"
            if module is None or tensor is None or collection not in due:
                continue
            prefix = f"{module}/{collection}/"
            if self._tensors.count(prefix) < _MOST_CALLS:
                named = self._tensors.numbered(prefix, tensor)
                self._tensors.capture(named, member_of=(collection,))

    # How -----------------------------------------------------------------------------------------

    def _forget_due(self) -> None:
        super()._forget_due()
        self._wanted_modules.clear()

    @guarded("functions")
    def _watch_functions(self, model: nn.Module) -> None:
        if of_functions(self._due_key):
            self._activations.look(model)

    def _stop_modules(self) -> None:
        self._modules.stop()
        self._pass_end.stop()
        self._calls.forget()
        self._activations.stop()

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

    def _modules_of(self, collections: Iterable[Collection]) -> set[nn.Module]:
        if self._overridden.captures_modules:
            return set()
        return self._registered.named_like(lambda name: may_match(collections, name))

    @guarded("modules")
    def _on_compile(self, _: nn.Module) -> None:
        self._has_compiled = True
        with suppress(HookConfigurationError):  # raised again when the step begins
            self._prepare_collections()
        self._modules.keep(self._modules_of(included(self.collection_manager)))
        if self._needs_outputs:
            self._pass_end.keep(set(self._registered.models))

    @guarded("modules")
    def _warn_of_unseen_modules(self) -> None:
        """Log once which parts of a compiled model were not seen in a step."""
        if not self._has_compiled or not self._due or self._warned_of_unseen_modules:
            return
        names = sorted(self._registered.names[module] for module in self._due_modules())
        unseen = [name for name in names if not self._tensors.count(f"{name}_output_")]
        if unseen:
            self._warned_of_unseen_modules = True
            logger.warning(
                "inputs and outputs of %.500s are not saved, because the compiled model "
                "does not call them. If it was compiled before registration, call "
                "torch.compiler.reset().",
                ", ".join(unseen),
            )
