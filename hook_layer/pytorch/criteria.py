"""Modules of a script's own that turn out to be its losses: a backward pass starts from them.

Such a module has no parameters, is no part of a model, and what it is called tells nothing. So its
calls are kept until a backward pass begins. If that starts from what the module returned, but for a
constant, or from a sum of such, see `hook_layer.pytorch.loss_graph`, the module is a loss.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from torch import Tensor, nn

from hook_layer.pytorch.calls import ModuleCall, ModuleCallback, tensors_in
from hook_layer.pytorch.loss_graph import terms_of
from hook_layer.pytorch.modules import is_a_key, is_wrapper

__all__ = ["Criteria", "CriterionCall"]

_MOST_MODULES: Final = 16
_MOST_CALLS: Final = 16
_MOST_PASSES: Final = 3
"""Saved backward passes after which a module that none started from is left alone."""


class CriterionCall:
    """A call of a module that returned nothing but numbers to learn from.

    Attributes:
        module: The module.
        inputs: Its inputs, with their graphs.
        outputs: The numbers that it returned, detached.
    """

    __slots__ = ("inputs", "module", "outputs")

    def __init__(self, module: nn.Module, inputs: Any, outputs: list[Tensor]) -> None:
        self.module = module
        self.inputs = inputs
        self.outputs = outputs


class _Number(NamedTuple):
    """A number that a call returned, by its node of the graph."""

    node: Any
    call: CriterionCall


class Criteria:
    """The modules that may be losses, and their calls since the model was called."""

    def __init__(self) -> None:
        self._handles: dict[nn.Module, Any] = {}
        self._numbers: list[_Number] = []
        self._num_passes = 0

    def watch(self, module: nn.Module, callback: ModuleCallback) -> None:
        """Look whether a module is a loss, unless there are very many.

        Args:
            module: The module.
            callback: Called with its calls, which it is to pass on to `note`; known weakly.
        """
        if len(self._handles) >= _MOST_MODULES or not is_a_key(module) or is_wrapper(module):
            return
        if module not in self._handles and next(module.parameters(), None) is None:
            call = ModuleCall(module, callback)
            self._handles[module] = module.register_forward_hook(call, with_kwargs=True)

    def note(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        """Keep a call that a backward pass may start from, one of the newest."""
        values = tensors_in(outputs)
        if all(value.numel() == 1 for value in values):
            # Scripts divide them in place.
            own = [value.detach().clone() for value in values]
            call = CriterionCall(module, inputs, own)
            known = [*self._numbers, *(_Number(value.grad_fn, call) for value in values)]
            self._numbers = [number for number in known if number.node is not None][-_MOST_CALLS:]

    def forget(self) -> None:
        """Forget the calls up to now, and let go of their graphs."""
        self._numbers.clear()

    def stop(self) -> None:
        """Look at no module any more."""
        self.forget()
        for handle in self._handles.values():
            handle.remove()
        self._handles.clear()

    def of_training(self, loss: Tensor, scale: Tensor | None = None) -> list[CriterionCall]:
        """Return the calls that a backward pass starts from, in their order, and forget all.

        Args:
            loss: What it starts from, one element.
            scale: By what a gradient scaler has multiplied it.
        """
        if not self._handles:
            return []
        numbers, self._numbers = self._numbers, []
        terms = terms_of(loss, numbers, scale)
        parts = {numbers[at].call: None for at in sorted(term.at for term in terms)}
        found = [] if any(term.is_partial for term in terms) else list(parts)
        self._num_passes += 1
        if found or self._num_passes >= _MOST_PASSES:
            self.stop()
        return found
