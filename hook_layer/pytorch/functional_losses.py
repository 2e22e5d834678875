"""Losses that no module computes, as `F.cross_entropy(...)`: which call a model is trained by.

While a step is saved the calls of torch's loss functions are kept until a backward pass begins. If
it starts from what one of them returned, or from that behind nothing but views, copies, means and
sums of its elements, sums with what needs no gradient, and products with a constant, then that is
the loss: not a sum of it and something else to learn, nor the product with a reward, of which rules
could tell nothing. A constant that is not from 0 to 1, as of accumulation, must stay the same: the
wrong sign does, a reward does not.

Validation has no backward pass. There the loss is the call that has the same place among the calls
of its function as the one that the model was last trained by, if all but the reduction is the same.
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
_Call = tuple[WatchedLoss, Mapping[str, Any]]


@dataclass(frozen=True)
class LossCall:
    """A call of a loss function.

    Attributes:
        function: Which function.
        inputs: What it compared, detached, by number; only what was asked for.
        value: What it returned, detached.
    """

    function: WatchedLoss
    inputs: Mapping[int, Tensor]
    value: Tensor


@dataclass(frozen=True)
class _Manner:
    """How a function was called.

    Attributes:
        function: Which function.
        place: How many calls of it there were before, since the model was called.
        reduction: What it made of its elements: `mean`, `sum`, `none` and the like.
        options: Its other arguments.
        num_rows: Rows of what it compared.
    """

    function: WatchedLoss
    place: int
    reduction: str
    options: Mapping[str, Any]
    num_rows: int

    def is_comparable(self, other: _Manner) -> bool:
        """Tell whether the value of another call is of the same kind, reduced in the same way."""
        own, others = self.options, other.options
        is_same = (self.function, self.place) == (other.function, other.place) and all(
            own[name] is others[name] or _is_number_of(own[name], others[name]) for name in own
        )
        return is_same and (self.reduction == "mean" or self.num_rows == other.num_rows)


class FunctionalLosses:
    """The calls of a step, and the one that training goes by."""

    def __init__(self) -> None:
        self._calls: list[_Kept] = []
        self._places: Counter[WatchedLoss] = Counter()
        self._trained_by: _Manner | None = None
        self._constants: dict[tuple[WatchedLoss, int], float] = {}

    def forget(self) -> None:
        """Forget the calls up to now, and let go of what they compared."""
        self._calls.clear()

    def forget_all(self) -> None:
        """Forget also which call training goes by."""
        self.forget()
        self._trained_by = None

    def pass_begins(self) -> None:
        """Begin anew: the model is called."""
        self._places.clear()
        self.forget()

    def note(self, call: _Call, value: Any, *, with_inputs: bool) -> None:
        """Keep a call that a backward pass may start from, one of the newest.

        Args:
            call: The function, and its arguments.
            value: What it returned.
            with_inputs: Whether what it compares is asked for.
        """
        manner = self._manner(call)
        if manner is None or not isinstance(value, Tensor) or value.grad_fn is None:
            return
        # Scripts divide it in place.
        own = value.detach().clone() if value.numel() == 1 else value.detach()
        kept = _Kept(manner, LossCall(call[0], _inputs(call, with_inputs), own), value.grad_fn)
        self._calls = [*self._calls[1 - _MOST_CALLS :], kept]

    def of_validation(self, call: _Call, value: Any, *, with_inputs: bool) -> LossCall | None:
        """Return a call of validation as a loss comparable with that of training.

        Args:
            call: The function, and its arguments.
            value: What it returned.
            with_inputs: Whether what it compares is asked for.

        Returns:
            None if it is none, or none is known yet.
        """
        manner, known = self._manner(call), self._trained_by
        if manner is None or known is None or not known.is_comparable(manner):
            return None
        if manner.reduction == "none" or not isinstance(value, Tensor):
            return None  # what the script makes of the elements is not known
        if manner.reduction != known.reduction:  # as a sum of all rows, to be divided later
            value = call[0].reduced(call[1], known.reduction)
        return LossCall(call[0], _inputs(call, with_inputs), value.detach())

    def of_training(
        self, loss: Tensor, scale: Tensor | None = None
    ) -> tuple[LossCall | None, bool]:
        """Return the call that a backward pass starts from, and forget it and those before.

        Args:
            loss: What it starts from, one element.
            scale: By what a gradient scaler has multiplied it.

        Returns:
            The call, and whether its value, one number, may stand for the loss: of a mean that is
            divided for accumulation it may, but not of a sum that the script makes a mean. None if
            it starts from no call of this step, or what that compared was written to since.
        """
        self._trained_by = None
        calls, self._calls = self._calls, []
        # What torch keeps, and how, differs by version.
        with suppress(
            _UnknownError, ArithmeticError, AttributeError, RuntimeError, TypeError, ValueError
        ):
            kept, constants = _behind(loss.grad_fn, calls, scale)
            self._calls = calls[calls.index(kept) + 1 :]
            manner = kept.manner
            if kept.versions == _versions(kept.call) and self._may_multiply(manner, constants):
                is_mean = manner.reduction == "mean" or not constants
                is_whole = manner.reduction != "none" and kept.call.value.numel() == 1 and is_mean
                self._trained_by = manner if is_whole else None
                return kept.call, is_whole
        return None, False

    def _manner(self, call: _Call) -> _Manner | None:
        function, given = call
        place = self._places[function]
        self._places[function] += 1
        reduction = function.reduction(given)
        if reduction is None:
            return None
        first = function.inputs(given).get(0)
        num_rows = 0 if first is None else (first.shape[0] if first.dim() else 1)
        return _Manner(function, place, reduction, function.options(given), num_rows)

    def _may_multiply(self, manner: _Manner, constants: list[float]) -> bool:
        """Tell whether constants may be such, and no reward, of which each step has another one."""
        constant = prod(constants)
        if not isfinite(constant) or constant == 0:
            return False
        key = manner.function, manner.place
        known = self._constants.setdefault(key, constant)
        if known != constant and not (0 < known <= 1 and 0 < constant <= 1):
            self._constants[key] = known = nan
        return known == known  # noqa: PLR0124 - not NaN


class _UnknownError(Exception):
    """The graph is not one of those that are understood."""


class _Kept:
    """A call, the node of the graph that it made, and what was written to its inputs by then."""

    __slots__ = ("call", "manner", "node", "versions")

    def __init__(self, manner: _Manner, call: LossCall, node: Any) -> None:
        self.manner = manner
        self.call = call
        self.node = node
        self.versions = _versions(call)


def _inputs(call: _Call, with_inputs: bool) -> dict[int, Tensor]:
    inputs = call[0].inputs(call[1]) if with_inputs else {}
    return {number: tensor.detach() for number, tensor in inputs.items()}


def _versions(call: LossCall) -> tuple[int, ...]:
    # Inference tensors do not count what is written to them.
    known = (tensor for tensor in call.inputs.values() if not tensor.is_inference())
    return tuple(tensor._version for tensor in known)  # noqa: SLF001 - no public way


def _is_number_of(value: Any, other: Any) -> bool:
    return isinstance(value, (int, float, str)) and value == other


def _behind(node: Any, calls: list[_Kept], scale: Tensor | None) -> tuple[_Kept, list[float]]:
    """Return the call that a node is of, and by which constants it was multiplied."""
    constants: list[float] = []
    for _ in range(_MOST_NODES):
        if node is None:
            break
        found = next((kept for kept in calls if kept.node is node), None)
        if found is not None:
            return found, constants
        name = node.name()
        if name in ("MulBackward0", "DivBackward0"):
            constant = _constant(node)
            if scale is None or constant.data_ptr() != scale.data_ptr():
                constants.append(_factor(node, constant))
        elif name in ("AddBackward0", "SubBackward0"):
            constants += _sign(node)
        elif name in ("NegBackward0", "RsubBackward1"):
            constants.append(-1.0)
        elif name not in _PASSED:
            break
        node = next(before for before, _ in node.next_functions if before is not None)
    raise _UnknownError


def _sign(node: Any) -> list[float]:
    """Return by what a sum or difference with something that needs no gradient multiplies."""
    is_graph = [before is not None for before, _ in node.next_functions]
    if sum(is_graph) != 1 or getattr(node, "_saved_alpha", 1) != 1:
        raise _UnknownError
    return [-1.0] if node.name() == "SubBackward0" and not is_graph[0] else []


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
