"""Modules of a script's own that turn out to be its losses: a backward pass starts from them.

Such a module has no parameters, is no part of a model, and its name tells nothing. So in the first
steps that are saved every module is listened to, and calls that made nothing but numbers of what a
model returned are noted. If a backward pass starts from a sum of these, but for a constant, see
`hook_layer.pytorch.loss_graph`, their modules are losses; unless in the same step a pass starts
from something else, which such a module would hide. What is subtracted is no loss, nor is a module
that is gone when the step ends, as each step makes a new one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from weakref import ref

import torch
from torch import Tensor, nn
from torch.nn.modules.loss import _Loss
from torch.nn.modules.module import register_module_forward_hook

from hook_layer.pytorch import own_hooks
from hook_layer.pytorch.calls import Arguments, ModuleCallback, tensors_in, versions_of
from hook_layer.pytorch.loss_graph import terms_of
from hook_layer.pytorch.modules import is_wrapper
from hook_layer.weak_method import WeakMethod

__all__ = ["Criteria", "CriterionCall"]

_MOST_NUMBERS: Final = 64
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


class Criteria:
    """The modules that may be losses, and their calls since the model was called."""

    def __init__(self) -> None:
        self._hook: Callable[..., None] | None = None
        self._handle: Any = None
        self._calls: dict[Any, CriterionCall] = {}  # by the node of the graph of each number
        self._found: list[ref[nn.Module]] = []
        self._is_mixed = False
        self._num_steps = 0

    def look(self, callback: ModuleCallback) -> None:
        """Listen to every module, in the next few training steps that are saved.

        Args:
            callback: Called with a module, its inputs and outputs behind its forward pass, to pass
                them on to `note` unless the module is known; its owner is known weakly.
        """
        method = WeakMethod(callback)

        def hook(module: nn.Module, inputs: Any, keywords: Any, outputs: Any) -> None:
            listener = None if torch.compiler.is_compiling() else method()
            if listener is not None:
                listener(module, Arguments((*inputs, *keywords.values())), outputs)

        self._hook = self._hook or hook

    def note(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        """Note a call that a backward pass may start from, one of the newest."""
        values = tensors_in(outputs)
        if any(value.numel() != 1 for value in values) or not _may_be_loss(module):
            return
        given = tensors_in(inputs)
        passed_on = {tensor.grad_fn for tensor in given}
        nodes = {value.grad_fn for value in values} - passed_on - {None}
        # What needs no gradient is not compared with the targets, but the input of a whole step.
        if nodes and any(tensor.requires_grad for tensor in given):
            self._calls |= dict.fromkeys(nodes, CriterionCall(module, inputs, values))
            for node in [*self._calls][:-_MOST_NUMBERS]:
                del self._calls[node]

    def step_begins(self, *, is_due: bool) -> list[nn.Module]:
        """Forget the calls of the step before, and return the losses that were found in it.

        Args:
            is_due: Whether the step that begins is one to look at: saved, and of training.
        """
        self.forget()
        found = [] if self._is_mixed else [owner() for owner in self._found]
        self._found, self._is_mixed = [], False
        self._num_steps += is_due and self._hook is not None
        is_made_anew = None in found
        if is_made_anew or self._num_steps > _MOST_STEPS:
            self.stop()
        elif not is_due:
            self._unlisten()
        elif self._hook is not None and self._handle is None:
            self._handle = own_hooks.register(
                register_module_forward_hook, self._hook, with_kwargs=True
            )
        return [] if is_made_anew else [module for module in found if module is not None]

    def forget(self) -> None:
        """Forget the calls up to now, and released their graphs."""
        self._calls.clear()

    def stop(self) -> None:
        """Listen to no module any more."""
        self.forget()
        self._unlisten()
        self._hook = None

    def _unlisten(self) -> None:
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

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
        nodes, calls = [*self._calls], [*self._calls.values()]
        terms = terms_of(loss, [] if is_other else nodes, is_scaled=is_scaled)
        owners = [calls[place].module for place in sorted(terms.signs)]
        is_sum = not terms.is_partial and all(sign > 0 for sign in terms.signs.values())
        if not owners or not is_sum or any(owner() is None for owner in owners):
            self._is_mixed = True
            self.forget()
            return None
        self._found += [owner for owner in owners if owner not in self._found]
        of_owners = dict.fromkeys(call for call in calls if call.module in owners)
        found = [call for call in of_owners if not call.has_backward]
        for call in found:
            call.has_backward = True
        return found


def _may_be_loss(module: nn.Module) -> bool:
    """Return whether a module may be a loss by its kind: it learns nothing, and is no layer."""
    is_layer = type(module).__module__.startswith("torch.nn.") and not isinstance(module, _Loss)
    is_other = is_layer or is_wrapper(module) or isinstance(module, torch.jit.ScriptModule)
    return not is_other and next(module.parameters(), None) is None
