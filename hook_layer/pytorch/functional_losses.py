"""Losses that no module computes, as `F.cross_entropy(...)`: which call a model is trained by.

While a step is saved the calls of torch's loss functions are kept until a backward pass begins. If
it starts from what one of them returned, or from that behind nothing but views, copies, means and
sums of its elements, and products with a constant, then that is the loss: not a sum of it and
something else, nor the product with a reward, of which rules could tell nothing. A constant that is
not from 0 to 1, as of accumulation, must stay the same: the wrong sign does, a reward does not.

Validation has no backward pass. There the loss is the call that has the same place among the calls
of its function as the one that the model was last trained by.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite, nan, prod
from typing import Any, Final

from torch import Tensor

from hook_layer.pytorch.watched_losses import WatchedLoss

__all__ = ["FunctionalLosses", "LossCall"]

_PASSED: Final = frozenset(
    f"{name}Backward0"
    for name in (
        *("View", "UnsafeView", "ReshapeAlias", "Squeeze", "Unsqueeze"),
        *("Alias", "Clone", "ToCopy", "Mean", "Sum"),
    )
)
_MOST_NODES: Final = 32
_MOST_CALLS: Final = 16


@dataclass(frozen=True)
class LossCall:
    """A call of a loss function.

    Attributes:
        function: Which function.
        place: How many calls of it there were before, since the model was called.
        reduction: What it made of its elements: `mean`, `sum`, `none` and the like.
        inputs: What it compared, detached, by number.
        value: What it returned, detached.
    """

    function: WatchedLoss
    place: int
    reduction: str
    inputs: Mapping[int, Tensor]
    value: Tensor


class FunctionalLosses:
    """The calls of a step, and the one that training goes by."""

    def __init__(self) -> None:
        self._calls: list[_Kept] = []
        self._places: Counter[WatchedLoss] = Counter()
        self._trained_by: LossCall | None = None
        self._constants: dict[tuple[WatchedLoss, int], float] = {}

    def forget(self) -> None:
        """Forget the calls up to now, and let go of what they compared."""
        self._calls.clear()

    def pass_begins(self) -> None:
        """Number calls anew: the model is called."""
        self._places.clear()

    def note(self, function: WatchedLoss, args: Any, kwargs: Any, value: Any) -> None:
        """Keep a call that a backward pass may start from, one of the newest."""
        place = self._next_place(function)
        reduction = function.reduction(args, kwargs)
        if reduction is None or not isinstance(value, Tensor) or value.grad_fn is None:
            return
        inputs = {number: t.detach() for number, t in function.inputs(args, kwargs).items()}
        call = LossCall(function, place, reduction, inputs, value.detach())
        self._calls = [*self._calls[1 - _MOST_CALLS :], _Kept(call, value.grad_fn)]

    def of_validation(
        self, function: WatchedLoss, args: Any, kwargs: Any, value: Any
    ) -> LossCall | None:
        """Return a call of validation as a loss comparable with that of training.

        Returns:
            None if it is none, or none is known yet.
        """
        place, known = self._next_place(function), self._trained_by
        if known is None or known.function is not function or known.place != place:
            return None
        reduction = function.reduction(args, kwargs)
        if reduction is None or not isinstance(value, Tensor):
            return None
        if reduction != known.reduction:  # a sum over all rows is often taken, to be divided later
            value = function.reduced(args, kwargs, known.reduction)
        inputs = {number: t.detach() for number, t in function.inputs(args, kwargs).items()}
        return LossCall(function, place, known.reduction, inputs, value.detach())

    def of_training(
        self, loss: Tensor, scale: Tensor | None = None
    ) -> tuple[LossCall | None, bool]:
        """Return the call that a backward pass starts from, and forget it.

        Args:
            loss: What it starts from, one element.
            scale: By what a gradient scaler has multiplied it.

        Returns:
            The call, and whether its value, one number, may stand for the loss: of a mean that is
            divided for accumulation it may, but not of a sum that the script makes a mean. None if
            it starts from no call of this step, or what that compared was written to since.
        """
        self._trained_by = None
        # What torch keeps, and how, differs by version.
        with suppress(
            _UnknownError, ArithmeticError, AttributeError, RuntimeError, TypeError, ValueError
        ):
            kept, constants = self._behind(loss.grad_fn, scale)
            self._calls = self._calls[self._calls.index(kept) + 1 :]
            call = kept.call
            if kept.versions == _versions(call) and self._may_multiply(call, prod(constants)):
                is_mean = call.reduction == "mean" or not constants
                is_whole = call.value.numel() == 1 and is_mean
                self._trained_by = call if is_whole else None
                return call, is_whole
        return None, False

    def _next_place(self, function: WatchedLoss) -> int:
        self._places[function] += 1
        return self._places[function] - 1

    def _may_multiply(self, call: LossCall, constant: float) -> bool:
        """Tell whether a constant may be one, and no reward that another step has another of."""
        if 0 < constant <= 1:
            return True
        known = self._constants.setdefault((call.function, call.place), constant)
        if known != constant:
            self._constants[call.function, call.place] = nan
        return known == constant and isfinite(constant) and constant != 0

    def _behind(self, node: Any, scale: Tensor | None) -> tuple[_Kept, list[float]]:
        """Return the call that a node is of, and by which constants it was multiplied."""
        constants: list[float] = []
        for _ in range(_MOST_NODES):
            if node is None:
                break
            found = next((kept for kept in self._calls if kept.node is node), None)
            if found is not None:
                return found, constants
            if node.name() in ("MulBackward0", "DivBackward0"):
                constant = _constant(node)
                if scale is None or constant.data_ptr() != scale.data_ptr():
                    constants.append(_factor(node, constant))
            elif node.name() == "NegBackward0":
                constants.append(-1.0)
            elif node.name() not in _PASSED:
                break
            node = next(before for before, _ in node.next_functions if before is not None)
        raise _UnknownError


class _UnknownError(Exception):
    """The graph is not one of those that are understood."""


class _Kept:
    """A call, the node of the graph that it made, and what was written to its inputs by then."""

    __slots__ = ("call", "node", "versions")

    def __init__(self, call: LossCall, node: Any) -> None:
        self.call = call
        self.node = node
        self.versions = _versions(call)


def _versions(call: LossCall) -> tuple[int, ...]:
    # Inference tensors do not count what is written to them.
    known = (tensor for tensor in call.inputs.values() if not tensor.is_inference())
    return tuple(tensor._version for tensor in known)  # noqa: SLF001 - no public way


def _constant(node: Any) -> Tensor:
    """Return by what a product or quotient multiplies or divides."""
    is_graph = [before is not None for before, _ in node.next_functions]
    if sum(is_graph) != 1 or (node.name() == "DivBackward0" and not is_graph[0]):
        raise _UnknownError
    constant = _saved(node, "other" if is_graph[0] else "self")
    if constant.numel() != 1:
        raise _UnknownError
    return constant


def _factor(node: Any, constant: Tensor) -> float:
    """Return by what a node multiplies, without waiting for a device."""
    is_quotient = node.name() == "DivBackward0"
    if constant.device.type == "cpu":
        return 1 / float(constant) if is_quotient else float(constant)
    if is_quotient and not constant.is_floating_point():
        return 1.0  # a number of elements, at least 1
    raise _UnknownError


def _saved(node: Any, name: str) -> Tensor:
    """Return what a node keeps, detached, if it keeps it itself."""
    if getattr(node, f"_raw_saved_{name}").unpack_hook is not None:
        raise _UnknownError
    tensor = getattr(node, f"_saved_{name}")
    if not isinstance(tensor, Tensor):
        raise _UnknownError
    return tensor.detach()
