"""Modules of a script's own that turn out to be its losses: a backward pass starts from them.

Such a module has no parameters, is no part of a model, and what it is called tells nothing. So in
the first steps that are saved every module that is called is looked at, and the calls that returned
nothing but numbers are kept until the model is called again. If a backward pass starts from one of
these, but for a constant, or from a sum of them, see `hook_layer.pytorch.loss_graph`, its module is
a loss; unless in the same step a pass starts from something else: then the module may be a term
beside the loss, and would hide it. What is subtracted is no loss, but something to be maximised, as
an overlap; nor is a module that is gone by then, which each step makes anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple
from weakref import WeakSet, ref

import torch
from torch import Tensor, nn
from torch.nn.modules.loss import _Loss
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

from hook_layer.pytorch import own_hooks
from hook_layer.pytorch.calls import Arguments, ModuleCallback, tensors_in, versions_of
from hook_layer.pytorch.loss_graph import terms_of
from hook_layer.pytorch.modules import is_a_key, is_wrapper
from hook_layer.weak_method import WeakMethod

__all__ = ["Criteria", "CriterionCall"]

_MOST_CALLS: Final = 64
_MOST_STEPS: Final = 2
"""Training steps that are saved in which losses are looked for."""


class CriterionCall:
    """A call of a module that returned nothing but numbers to learn from.

    Attributes:
        module: The module, which may be gone.
        name: Name of its class.
        outputs: The numbers that it returned, detached.
        has_backward: Whether a backward pass has started from it.
    """

    def __init__(self, module: nn.Module, inputs: Any, outputs: list[Tensor]) -> None:
        self.module = ref(module)
        self.name = type(module).__name__
        self.has_backward = False
        self.outputs = [value.detach().clone() for value in outputs]  # scripts divide in place
        self._inputs = inputs
        self._versions = versions_of(tensors_in(inputs))

    def take_inputs(self) -> Any:
        """Release and return the arguments of the call; nothing if they were overwritten since."""
        inputs, self._inputs = self._inputs, ()
        return inputs if self._versions == versions_of(tensors_in(inputs)) else ()


class _Number(NamedTuple):
    """A number that a call returned, by its node of the graph."""

    node: Any
    call: CriterionCall


class Criteria:
    """The modules that may be losses, and their calls since the model was called."""

    def __init__(self) -> None:
        self._hooks: tuple[Callable[..., None], Callable[..., None]] | None = None
        self._handles: list[Any] = []
        self._others: WeakSet[nn.Module] = WeakSet()
        self._begun: set[int] = set()
        self._numbers: list[_Number] = []
        self._found: list[ref[nn.Module]] = []
        self._is_mixed = False
        self._num_steps = 0

    def look(self, begins: Callable[[nn.Module], None], ends: ModuleCallback) -> None:
        """Look at every module that is called, in the next few training steps that are saved.

        Args:
            begins: Called before a module's forward pass, to pass it on to `begin` unless it is
                known; its owner is known weakly.
            ends: Called with its inputs and outputs behind it, to pass them on to `note`; likewise.
        """
        before, after = WeakMethod(begins), WeakMethod(ends)

        def on_begin(module: nn.Module, _: Any) -> None:
            if not torch.compiler.is_compiling():
                method = before()
                if method is not None:
                    method(module)

        def on_end(module: nn.Module, inputs: Any, keywords: Any, outputs: Any) -> None:
            if not torch.compiler.is_compiling() and id(module) in self._begun:
                method = after()
                if method is not None:
                    method(module, Arguments((*inputs, *keywords.values())), outputs)

        if self._hooks is None:
            self._hooks = on_begin, on_end

    def begin(self, module: nn.Module) -> None:
        """Note that a module is called which is neither a loss yet nor part of a watched model."""
        if self._is_mixed or module in self._others or _is_no_loss(module):
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
        if any(value.numel() != 1 for value in values):
            return
        # Not the numbers that it only passes on; but those of its parts are its own.
        given, nodes = _nodes_of(tensors_in(inputs)), _nodes_of(values)
        own = {key: node for key, node in nodes.items() if key not in given}
        if own:
            call = CriterionCall(module, inputs, values)
            known = [number for number in self._numbers if id(number.node) not in own]
            self._numbers = [*known, *(_Number(node, call) for node in own.values())][-_MOST_CALLS:]

    def step_begins(self, *, is_due: bool) -> list[nn.Module]:
        """Forget the calls of the step before, and return the losses that were found in it.

        Args:
            is_due: Whether the step that begins is one to look at: saved, and of training.
        """
        self.forget()
        found = [] if self._is_mixed else [owner() for owner in self._found]
        self._found, self._is_mixed = [], False
        self._num_steps += is_due and self._hooks is not None
        is_made_anew = None in found
        if is_made_anew or self._num_steps > _MOST_STEPS:
            self.stop()
        elif is_due:
            self._listen()
        else:
            self._unlisten()
        return [] if is_made_anew else [module for module in found if module is not None]

    def forget(self) -> None:
        """Forget the calls up to now, and released their graphs."""
        self._numbers.clear()
        self._begun.clear()

    def stop(self) -> None:
        """Look at no module any more."""
        self.forget()
        self._unlisten()
        self._hooks = None
        self._others.clear()

    def _listen(self) -> None:
        if self._hooks is not None and not self._handles:
            begins, ends = self._hooks
            self._handles = [
                own_hooks.register(register_module_forward_pre_hook, begins),
                own_hooks.register(register_module_forward_hook, ends, with_kwargs=True),
            ]

    def _unlisten(self) -> None:
        while self._handles:
            self._handles.pop().remove()

    def of_training(
        self, loss: Tensor, *, is_scaled: bool = False, is_other: bool = False
    ) -> list[CriterionCall] | None:
        """Return the calls of the modules that a backward pass starts from, in their order.

        Calls from which a pass has started before are left out. None, if it starts from something
        else.

        Args:
            loss: What it starts from, one element.
            is_scaled: Whether a gradient scaler returned it.
            is_other: Whether it is known to start from something else.
        """
        numbers = [] if is_other else self._numbers
        terms = terms_of(loss, [number.node for number in numbers], is_scaled=is_scaled)
        owners = [numbers[place].call.module for place in sorted(terms.signs)]
        is_sum = not terms.is_partial and all(sign > 0 for sign in terms.signs.values())
        if not owners or not is_sum or any(owner() is None for owner in owners):
            self._is_mixed = True
            self.forget()
            return None
        self._found += [owner for owner in owners if owner not in self._found]
        calls = dict.fromkeys(number.call for number in numbers if number.call.module in owners)
        found = [call for call in calls if not call.has_backward]
        for call in found:
            call.has_backward = True
        return found


def _is_no_loss(module: nn.Module) -> bool:
    """Return whether a module is none by its kind, as layers of torch are."""
    is_layer = type(module).__module__.startswith("torch.nn.") and not isinstance(module, _Loss)
    return is_layer or is_wrapper(module) or isinstance(module, torch.jit.ScriptModule)


def _nodes_of(tensors: list[Tensor]) -> dict[int, Any]:
    """Return the nodes of the graph that tensors come from, by their ids while they are kept."""
    nodes = [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]
    return {id(node): node for node in nodes}
