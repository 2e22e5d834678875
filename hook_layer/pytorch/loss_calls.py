"""Finds the calls of loss functions that a model is trained by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isclose, isfinite, isnan
from typing import Any, Final, NamedTuple
from weakref import ReferenceType, ref

import torch
from torch import Tensor

from hook_layer.pytorch.calls import versions_of
from hook_layer.pytorch.copies import HostCopy
from hook_layer.pytorch.tensor_elements import WHOLE, UnreadableTensorError, readable
from hook_layer.pytorch.watched_functions import WatchedLoss

__all__ = [
    "UNNAMED",
    "FunctionalLosses",
    "LossCall",
    "LossRatios",
    "Terms",
    "outputs_first",
    "terms_of",
]

_ROUNDING: Final = 1e-3
_MOST_OF_PART: Final = 5.0
"""Maximum first ratio of a loss with other terms to its call that stands for it. Terms of weights
alone, such as weight decay, may be any multiple of it, as may those next to the only comparison of
outputs with data."""


class LossRatios:
    """Decides from the ratio of loss and value whether a call stands for the loss."""

    def __init__(self) -> None:
        self._first: dict[Hashable, float] = {}
        self._rejected: set[Hashable] = set()
        self._coming: dict[Hashable, list[HostCopy]] = {}

    def accepts(
        self, key: Hashable, loss: Tensor, value: Tensor, *, largest: float | None, may_vary: bool
    ) -> bool:
        """Return whether the known ratios allow that a call with a value stands for the loss.

        Args:
            key: Identifies the call.
            loss: Start of the backward pass, one element.
            value: Value that the call returned, one element.
            largest: Maximum first ratio of a loss with other terms; None if it has none.
            may_vary: Whether a factor from 0 to 1 may change between steps.
        """
        with torch.no_grad():
            whole, part = loss.detach().double().reshape(()), value.detach().double().reshape(())
            # NaN then means 0 / 0, or a value that is NaN itself.
            ratio = whole.nan_to_num(inf, inf, -inf) / part
        coming = self._coming.setdefault(key, [])
        coming.append(HostCopy.of(ratio))
        while coming and coming[0].has_arrived():
            number = float(coming.pop(0).array())
            if not self._is_of_loss(key, number, largest=largest, may_vary=may_vary):
                self._rejected.add(key)
        return key not in self._rejected

    def first(self, key: Hashable) -> float:
        """Return the first ratio of a call; 1 if none is known."""
        return self._first.get(key, 1.0)

    def _is_of_loss(
        self, key: Hashable, ratio: float, *, largest: float | None, may_vary: bool
    ) -> bool:
        if isnan(ratio):
            return True
        first = self._first.setdefault(key, ratio)
        if not isfinite(ratio) or not isfinite(first) or not ratio:
            return False
        if largest is not None:
            # A negative other term, such as a policy's gain, may outweigh the call: reject it.
            return ratio >= 1 - _ROUNDING and first <= largest
        if may_vary and 0 < first <= 1 and 0 < ratio <= 1:
            return True
        return isclose(first, ratio, rel_tol=_ROUNDING)


def _nodes(*operations: str) -> frozenset[str]:
    """Return the names of nodes, such as `MeanBackward1` of `Mean1`."""
    return frozenset(f"{name[:-1]}Backward{name[-1]}" for name in operations)


_RESHAPES: Final = _nodes(
    *("View0", "UnsafeView0", "ReshapeAlias0", "Unsqueeze0", "Alias0", "Clone0", "ToCopy0"),
    *("Squeeze0", "Squeeze1", "Squeeze2"),
)
_PRODUCTS: Final = _nodes("Mul0", "Div0")
_SUMS: Final = _nodes("Mean0", "Mean1", "Sum0", "Sum1", "Neg0", "Add0", "Sub0", "Rsub1")
_LINEAR: Final = _RESHAPES | _PRODUCTS | _SUMS
"""Nodes that are linear in a term of the loss."""
_MOST_NODES: Final = 1024
"""Weight decay by hand has a few nodes for each weight."""


class Terms(NamedTuple):
    """The calls that a loss is the sum of.

    Attributes:
        places: Index of each call.
        has_factor: Whether the script multiplies one of the calls, alone or in a sum.
        is_partial: Whether the sum has other terms.
        is_penalised: Whether some other terms, or all, are functions of a single weight each.
    """

    places: list[int]
    has_factor: bool = False
    is_partial: bool = False
    is_penalised: bool = False

    @property
    def has_others(self) -> bool:
        """Whether the sum has any other terms."""
        return self.is_partial or self.is_penalised


def terms_of(loss: Tensor, nodes: Sequence[Any], *, is_scaled: bool = False) -> Terms:
    """Return the calls that a loss is a weighted sum of, by their nodes in its graph.

    A gradient scaler may have multiplied the loss. There are no places without any such calls.
    """
    known = {id(node): place for place, node in enumerate(nodes)}
    places: dict[int, None] = {}
    has_factor = is_partial = is_penalised = False
    waiting = [(loss.grad_fn, -int(is_scaled))]
    for _ in range(_MOST_NODES):
        if not waiting:
            return Terms([*places], has_factor, is_partial, is_penalised)
        node, num_products = waiting.pop()
        place = known.get(id(node))
        if place is not None:
            places[place] = None
            has_factor |= num_products > 0
            continue
        following = _linear(node)
        is_penalty = not following and _is_of_one_weight(node)
        is_penalised |= is_penalty
        is_partial |= not following and not is_penalty
        num_products += _name_of(node) in _PRODUCTS
        waiting += [(before, num_products) for before in reversed(following)]
    return Terms([])


def _is_of_one_weight(node: Any) -> bool:
    """Return whether a node computes a function of a single leaf, which has a gradient."""
    for _ in range(_MOST_NODES):
        if node is None or not node.next_functions:
            return node is not None
        following = {before for before, _ in node.next_functions}
        node = following.pop() if len(following) == 1 else None
    return False


def _linear(node: Any) -> list[Any]:
    """Return the terms of a linear node; an empty list for any other node."""
    name = _name_of(node)
    if name not in _LINEAR:
        return []
    following = [before for before, _ in node.next_functions if before is not None]
    is_product_of_both = name in _PRODUCTS and len(following) > 1
    is_divisor = name == "DivBackward0" and node.next_functions[0][0] is None
    return [] if is_product_of_both or is_divisor else following


def _name_of(node: Any) -> str:
    return "" if node is None else node.name()


_SYMMETRIC: Final = ("MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss")
UNNAMED: Final = "Loss"
"""Name of losses that are not the value of a single function."""
_MOST_CALLS: Final = 16
_OF_ALL_ROWS: Final = ("mean", "sum")
_Call = tuple[WatchedLoss, Mapping[str, Any]]


@dataclass(frozen=True)
class LossCall:
    """A loss that functions computed, detached.

    Attributes:
        name: Its name.
        inputs: Tensors that it compares, by number; only if requested.
        value: Its value.
        has_others: Whether other terms are added to it, and the script does not multiply it.
    """

    name: str
    inputs: Mapping[int, Tensor]
    value: Tensor
    has_others: bool = False


@dataclass(frozen=True)
class _Manner:
    """How a function was called.

    Attributes:
        function: The function.
        place: Number of earlier calls of it since the model was called.
        reduction: Reduction of its elements: `mean`, `sum`, `none` and the like.
        options: Its other arguments.
        num_rows: Number of rows of its inputs.
    """

    function: WatchedLoss
    place: int
    reduction: str
    options: Mapping[str, Any]
    num_rows: int

    def is_comparable(self, other: _Manner) -> bool:
        """Return whether the value of another call is of the same kind, with the same reduction.

        Sums may have different numbers of rows; the inputs show how many.
        """
        own, others = self.options, other.options
        is_same = (self.function, self.place) == (other.function, other.place) and all(
            own[name] is others[name] or _is_number_of(own[name], others[name]) for name in own
        )
        return is_same and (self.reduction in _OF_ALL_ROWS or self.num_rows == other.num_rows)


class FunctionalLosses:
    """The calls of a step, and the calls that the model is trained by.

    In a saved step, calls of torch's loss functions are kept until a backward pass begins. The call
    is the loss if the backward pass starts from its value times a constant. A product with a reward
    is not a loss. If the loss is a sum with other terms, such as a prior, the call stands for the
    loss if it is the only one, was at least a fifth of the sum at first, and never exceeded it. It
    may be any share of a sum in which the other terms are functions of the weights, or in which
    only the call compares outputs with data.

    Validation has no backward pass. There, the loss is the call with the same position among the
    calls of its function, and the same arguments except the reduction. If the model was trained by
    the sum of several calls, the loss is the sum of those. Training by a module of torch counts as
    training by the function that it calls, because validation often has a module of its own.
    """

    def __init__(self) -> None:
        self._calls: list[_NotedCall] = []
        self._places: Counter[WatchedLoss] = Counter()
        self._trained_by: list[_Manner] = []
        self._of_modules: dict[str, _Manner] = {}
        self._found: ReferenceType[Tensor] | None = None  # value of the newest validation call
        self._parts: dict[int, Tensor] = {}
        self._factor = 1.0  # factor of the sum of several calls
        self._of_data: set[Hashable] = set()  # calls that were the only comparison with data
        self._ratios = LossRatios()

    def forget(self) -> None:
        """Forget the calls so far, and release their inputs."""
        self._calls.clear()

    def forget_all(self) -> None:
        """Forget also the calls that the model is trained by."""
        self.forget_functions()
        self._of_modules.clear()

    def forget_functions(self) -> None:
        """Forget all calls except those of modules: the model is trained by a named loss."""
        self.forget()
        self._trained_by.clear()
        self._parts.clear()

    def pass_begins(self) -> None:
        """Start over with the places of calls: a model is called.

        Earlier calls stay: the loss may be a sum over several models, or calls of one.
        """
        self._places.clear()
        self._parts.clear()

    def note(self, call: _Call, value: Any, *, with_inputs: bool) -> None:
        """Keep a call that a backward pass may start from; only the newest calls are kept."""
        manner = self._manner(call)
        if manner is None or not isinstance(value, Tensor) or value.grad_fn is None:
            return
        # A clone, because scripts divide the value in place.
        own = value.detach().clone() if value.numel() == 1 else value.detach()
        loss = LossCall(call[0].class_name, _inputs(call) if with_inputs else {}, own)
        noted = _NotedCall(manner, loss, value.grad_fn, versions_of(loss.inputs.values()))
        self._calls = [*self._calls[1 - _MOST_CALLS :], noted]

    def note_module(self, name: str, value: Any) -> None:
        """Note that a module may have trained the model by the newest call, if it returned that."""
        if isinstance(value, Tensor) and self._calls:
            newest = self._calls[-1]
            if newest.node is value.grad_fn and newest.loss.name == name and newest.is_number:
                self._of_modules[name] = newest.manner

    def is_found(self, value: Any) -> bool:
        """Return whether a value was returned by the newest call that `of_validation` found."""
        return self._found is not None and self._found() is value

    def divides_sum(self, loss: Tensor) -> bool:
        """Return whether a loss [] is a multiple of a sum that a call returned."""
        calls = self._calls
        terms = terms_of(loss, [call.node for call in calls])
        sums = (calls[place].manner.reduction == "sum" for place in terms.places)
        return terms.has_factor and any(sums)

    def of_validation(self, call: _Call, value: Any) -> LossCall | None:
        """Return a validation call as a loss that is comparable with the training loss.

        None if it matches no known training call, or is only a part of the loss so far.
        """
        manner = self._manner(call)
        # It is unknown what the script computes from single elements.
        if manner is None or manner.reduction == "none" or not isinstance(value, Tensor):
            return None
        of_module = self._of_modules.get(call[0].class_name)
        trained_by = self._trained_by or ([] if of_module is None else [of_module])
        for at, known in enumerate(trained_by):
            if not known.is_comparable(manner):
                continue
            given = value
            if manner.reduction != known.reduction:  # a sum over all rows, to be divided later
                value = call[0].reduced(call[1], known.reduction)
            if len(trained_by) == 1:
                self._found = ref(given)
                return LossCall(call[0].class_name, _inputs(call), value.detach())
            with torch.no_grad():
                self._parts[at] = value.detach()
                if len(self._parts) == len(trained_by):
                    total = torch.stack([*self._parts.values()]).sum()
                    return LossCall(UNNAMED, {}, self._factor * total)
        return None

    def of_training(
        self, loss: Tensor, unscaled: Tensor, *, is_scaled: bool, targets: Tensor | None = None
    ) -> LossCall | None:
        """Return the call that a backward pass starts from; forget it and earlier calls.

        The call is `UNNAMED` if the script computes its own average of the function's value, such
        as a divided sum. A mean divided for accumulation keeps its name, and so does a divided sum
        with other terms, as in a variational autoencoder. None if no call of this step matches, or
        if its inputs were overwritten.

        Args:
            loss: Start of the backward pass, one element.
            unscaled: The same without the factor of a gradient scaler, detached.
            is_scaled: Whether a gradient scaler returned the loss.
            targets: The only data that this step compares with outputs; None if unknown.
        """
        self._trained_by = []
        calls, self._calls = self._calls, []
        terms = terms_of(loss, [each.node for each in calls], is_scaled=is_scaled)
        parts = [calls[at] for at in terms.places]
        if not parts or any(part.was_overwritten for part in parts):
            return None
        self._calls = calls[max(terms.places) + 1 :]
        inputs = [tensor for tensor in parts[0].loss.inputs.values() if type(tensor) in WHOLE]
        if targets is not None and any(map(targets.is_set_to, inputs)):
            self._of_data.add(_key_of(parts))
        if not self._stand_for(unscaled, parts, terms):
            return None
        if all(part.is_number for part in parts):
            self._trained_by = [part.manner for part in parts]
        if len(parts) > 1:
            return None
        found, reduction = parts[0].loss, parts[0].manner.reduction
        is_average = reduction != "mean" and terms.has_factor and not terms.has_others
        if parts[0].is_number and not is_average:
            return replace(found, has_others=terms.has_others and not terms.has_factor)
        self._trained_by = []
        return LossCall(UNNAMED, found.inputs, found.value)

    def _stand_for(self, loss: Tensor, parts: list[_NotedCall], terms: Terms) -> bool:
        """Return whether calls stand for a loss [] that contains them as terms."""
        is_one = len(parts) == 1
        is_own = any(part.manner.reduction not in _OF_ALL_ROWS for part in parts)
        if (terms.has_others and (is_own or not is_one)) or (terms.has_factor and is_own):
            return False
        key = _key_of(parts)
        has_limit = terms.is_partial and key not in self._of_data
        try:
            loss, values = readable(loss), [readable(part.loss.value) for part in parts]
        except UnreadableTensorError:
            return False
        total = torch.stack([value.double().sum() for value in values]).sum()
        may_vary = is_one and not is_own
        largest = (_MOST_OF_PART if has_limit else inf) if terms.has_others else None
        key = has_limit, *key  # a call that exceeded the limit has another chance without it
        is_loss = self._ratios.accepts(key, loss, total, largest=largest, may_vary=may_vary)
        self._factor = self._ratios.first(key)
        return is_loss

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


@dataclass(frozen=True, eq=False)
class _NotedCall:
    """A call, its node in the graph, and the number of writes to its inputs so far."""

    manner: _Manner
    loss: LossCall
    node: Any
    versions: tuple[int, ...]

    @property
    def was_overwritten(self) -> bool:
        """Whether its inputs were overwritten since."""
        return self.versions != versions_of(self.loss.inputs.values())

    @property
    def is_number(self) -> bool:
        """Whether the function itself returned a single number."""
        return self.manner.reduction != "none" and self.loss.value.numel() == 1


def _key_of(parts: Sequence[_NotedCall]) -> tuple[Hashable, ...]:
    return tuple((part.manner.function, part.manner.place) for part in parts)


def _inputs(call: _Call) -> dict[int, Tensor]:
    inputs = call[0].inputs(call[1])
    in_order = outputs_first(call[0].class_name, list(inputs.values()))
    return {n: tensor.detach() for n, tensor in zip(inputs, in_order, strict=True)}


def outputs_first(loss: str, inputs: list[Tensor]) -> list[Tensor]:
    """Return the inputs of a loss, model outputs first, then targets.

    Scripts pass the arguments of symmetric losses in either order. Targets need no gradient.
    """
    if loss.startswith(_SYMMETRIC) and len(inputs) > 1:
        first, second, *others = inputs
        if second.requires_grad and not first.requires_grad:
            return [second, first, *others]
    return inputs


def _is_number_of(value: Any, other: Any) -> bool:
    return isinstance(value, (int, float, str)) and value == other
