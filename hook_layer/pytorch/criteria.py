"""Modules of a script's own that turn out to be its losses: a backward pass starts from them.

Such a module has no parameters, is no part of a model, and what it is called tells nothing. So in
the first steps every module that is called is looked at, and the calls that returned nothing but
numbers are kept until the model is called again. If a backward pass starts from one of these, but
for a constant, or from a sum of them, see `hook_layer.pytorch.loss_graph`, its module is a loss;
unless in the same step a pass starts from something else: then the module may be a term beside the
loss, and would hide it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

from hook_layer.pytorch.calls import Arguments, ModuleCallback, tensors_in, versions_of
from hook_layer.pytorch.loss_graph import terms_of
from hook_layer.pytorch.modules import is_a_key, is_wrapper
from hook_layer.weak_method import WeakMethod

__all__ = ["Criteria", "CriterionCall"]

_MOST_CALLS: Final = 64
_MOST_STEPS: Final = 2
"""Training steps in which losses are looked for."""


class CriterionCall:
    """A call of a module that returned nothing but numbers to learn from.

    Attributes:
        module: The module.
        outputs: The numbers that it returned, detached.
        is_told: Whether a backward pass has started from it.
    """

    def __init__(self, module: nn.Module, inputs: Any, outputs: list[Tensor]) -> None:
        self.module = module
        self.is_told = False
        self.outputs = [value.detach().clone() for value in outputs]  # scripts divide in place
        self._inputs = inputs
        self._versions = versions_of(tensors_in(inputs))

    @property
    def inputs(self) -> Any:
        """What it was called with; nothing if that was overwritten since."""
        is_same = self._versions == versions_of(tensors_in(self._inputs))
        return self._inputs if is_same else ()


class _Number(NamedTuple):
    """A number that a call returned, by its node of the graph."""

    node: Any
    call: CriterionCall


class Criteria:
    """The modules that may be losses, and their calls since the model was called."""

    def __init__(self) -> None:
        self._handles: list[Any] = []
        self._others: WeakSet[nn.Module] = WeakSet()
        self._begun: set[int] = set()
        self._numbers: list[_Number] = []
        self._found: dict[nn.Module, None] = {}
        self._is_mixed = False
        self._num_steps = 0

    def look(self, begins: Callable[[nn.Module], None], ends: ModuleCallback) -> None:
        """Look at every module that is called, from now on and for a few steps.

        Args:
            begins: Called ahead of a module's forward pass, to pass it on to `begin` unless it is
                known; its owner is known weakly.
            ends: Called with its inputs and outputs behind it, to pass them on to `note`; likewise.
        """
        if not self._handles:
            ahead, behind = WeakMethod(begins), WeakMethod(ends)

            def on_begin(module: nn.Module, _: Any) -> None:
                if not torch.compiler.is_compiling():
                    method = ahead()
                    if method is not None:
                        method(module)

            def on_end(module: nn.Module, inputs: Any, keywords: Any, outputs: Any) -> None:
                if not torch.compiler.is_compiling() and id(module) in self._begun:
                    method = behind()
                    if method is not None:
                        method(module, Arguments((*inputs, *keywords.values())), outputs)

            self._handles = [
                register_module_forward_pre_hook(on_begin),
                register_module_forward_hook(on_end, with_kwargs=True),
            ]

    def begin(self, module: nn.Module) -> None:
        """Note that a module is called which is neither a loss yet nor part of a watched model."""
        if (
            module in self._others
            or is_wrapper(module)
            or isinstance(module, torch.jit.ScriptModule)
        ):
            return
        if next(module.parameters(), None) is None:
            self._begun.add(id(module))
        else:
            self._others.update(part for part in module.modules() if is_a_key(part))

    def note(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        """Keep a call that a backward pass may start from, one of the newest.

        Not so if the model was called in it: then it is no loss, but what holds model and loss.
        """
        if id(module) not in self._begun:
            return
        self._begun.discard(id(module))
        values = tensors_in(outputs)
        nodes = [value.grad_fn for value in values if value.numel() == 1]
        if len(nodes) == len(values) and any(node is not None for node in nodes):
            call = CriterionCall(module, inputs, values)
            known = [*self._numbers, *(_Number(node, call) for node in nodes if node is not None)]
            self._numbers = known[-_MOST_CALLS:]

    def step_begins(self) -> list[nn.Module]:
        """Forget the calls of the step before, and return the losses that were found in it."""
        self.forget()
        self._num_steps += torch.is_grad_enabled() and bool(self._handles)
        if self._num_steps > _MOST_STEPS:
            self.stop()
        found = [] if self._is_mixed else list(self._found)
        self._found, self._is_mixed = {}, False
        return found

    def forget(self) -> None:
        """Forget the calls up to now, and let go of their graphs."""
        self._numbers.clear()
        self._begun.clear()

    def stop(self) -> None:
        """Look at no module any more."""
        self.forget()
        while self._handles:
            self._handles.pop().remove()
        self._others.clear()

    def of_training(
        self, loss: Tensor, scale: Tensor | None = None, *, is_other: bool = False
    ) -> list[CriterionCall] | None:
        """Return the calls of the modules that a backward pass starts from, in their order.

        Calls from which a pass has started before are left out. None, if it starts from something
        else.

        Args:
            loss: What it starts from, one element.
            scale: By what a gradient scaler has multiplied it.
            is_other: Whether it is known to start from something else.
        """
        numbers = [] if is_other or self._is_mixed else self._numbers
        terms = terms_of(loss, numbers, scale) if numbers else []
        if not terms or any(term.is_partial for term in terms):
            self._is_mixed = True
            return None
        modules = dict.fromkeys(numbers[at].call.module for at in sorted(term.at for term in terms))
        self._found |= modules
        calls = dict.fromkeys(number.call for number in numbers if number.call.module in modules)
        found = [call for call in calls if not call.is_told]
        for call in found:
            call.is_told = True
        return found
