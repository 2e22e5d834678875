"""Distances that a script writes itself, as `((model(x) - y) ** 2).mean()`: what they compare.

No function call shows them, but the graph of the loss does: after means, sums and constants stands
a square or an absolute value, which keeps the difference D that it is of; the difference is between
what the model returned, O, but for views and selections, and something that needs no gradient. So
the targets are O - D, or O + D. For that O is kept in steps that are saved from the model's forward
pass until a backward pass begins, or the model is called again.

The targets are good to the rounding of the difference. Where all of them lie so close to whole
numbers, or to one number, they become these. Outputs have the shape in which the model returned
them, and so have targets, unless only a part of them is compared. Where the difference has more
elements than the outputs, as of [B, 1] and [B], both have the shapes in which they met, and the
targets are what does not vary along with the outputs. Of the mean of differences, or its square or
absolute value, the targets are one number, their mean.

Nothing is said of losses of several differences, of what the model returned behind other functions,
and of compiled models. No device is waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from hook_layer.pytorch.calls import tensors_in, versions_of
from hook_layer.pytorch.graph_views import RESHAPED, SELECTED, shape_of, signed, viewed
from hook_layer.pytorch.loss_graph import UnknownGraphError, saved_by
from hook_layer.pytorch.values import own_shard

__all__ = ["WrittenLosses"]

_MOST_OUTPUTS: Final = 8
_MOST_NODES: Final = 16
_CLOSE: Final = 1e-5
_SAME: Final = 1e-6
_MOST_ROUNDED: Final = 1e-2
_MEANS: Final = ("MeanBackward0", "MeanBackward1")
_REDUCED: Final = (*_MEANS, "SumBackward0", "SumBackward1", "NegBackward0")
_ADDED_DIMENSION: Final = "UnsqueezeBackward0"
_REPEATED: Final = ("GatherBackward0", "IndexBackward0")
_PRODUCTS: Final = ("MulBackward0", "DivBackward0")
_ERRORS: Final = (
    *(UnknownGraphError, ArithmeticError, AttributeError, LookupError),
    *(NotImplementedError, RuntimeError, TypeError, ValueError),
)


class _Output(NamedTuple):
    """What a model returned: its node of the graph, the number there, and what was written to."""

    value: Tensor
    node: Any
    number: int
    versions: tuple[int, ...]


class _Seen(NamedTuple):
    """What a difference is of: what the model returned, as it was and as it was viewed; nodes."""

    whole: Tensor
    part: Tensor
    views: list[Any]
    sign: int


class _Difference(NamedTuple):
    """The difference, or its mean, that a loss is of, and the node that computed the difference."""

    value: Tensor
    node: Any
    is_mean: bool


class WrittenLosses:
    """What a model returned in a step that is saved, until a backward pass begins."""

    def __init__(self) -> None:
        self._outputs: list[_Output] = []
        self._is_waiting = False

    @property
    def is_waiting(self) -> bool:
        """Whether the output of the model is awaited."""
        return self._is_waiting

    def await_outputs(self) -> None:
        """Keep what the model returns from the pass that has begun."""
        self.forget()
        self._is_waiting = True

    def note(self, outputs: Any) -> None:
        """Keep what the model returned, if that is awaited."""
        is_waiting = self._is_waiting
        self.forget()
        if is_waiting:
            self._outputs = [
                _Output(value.detach(), value.grad_fn, value.output_nr, versions_of([value]))
                for value in tensors_in(outputs)
                if value.is_floating_point() and _may_be_compared(value)
            ][:_MOST_OUTPUTS]

    def forget(self) -> None:
        """Release the output of the model, and await nothing."""
        self._outputs, self._is_waiting = [], False

    def inputs_of(self, loss: Tensor) -> tuple[Tensor, ...]:
        """Return what a loss compares, outputs and targets, detached; nothing if it is not known.

        Args:
            loss: What a backward pass is about to start from, one element.
        """
        if not self._outputs or own_shard(loss) is not loss or _is_recorded(loss):
            return ()
        # What torch keeps, and how, differs by version.
        with suppress(*_ERRORS), torch.no_grad():
            difference = _difference_of(loss)
            seen = _seen_in(difference.node, self._outputs)
            if difference.is_mean:
                value = difference.value.double().view(())
                return seen.part, seen.part.double().mean() - seen.sign * value
            return _compared(seen, difference.value)
        return ()


def _is_recorded(loss: Tensor) -> bool:
    """Return whether a CUDA graph is made of what is computed now, to do it all again each time."""
    return loss.is_cuda and torch.cuda.is_current_stream_capturing()


def _may_be_compared(value: Tensor) -> bool:
    """Return whether what a model returned can be learned, and told apart from scores.

    Rules take dimension 1 of probabilities for that of the classes. Of a script's own distance it
    need not be.
    """
    node: Any = value.grad_fn
    if node is None or node.name() != "SoftmaxBackward0":
        return node is not None
    return signed(node._saved_dim) % value.dim() == 1  # noqa: SLF001 - no public way


def _difference_of(loss: Tensor) -> _Difference:
    """Return the difference that a loss is the mean, or sum, of the squares or sizes of.

    Or the mean of the difference itself, which has a sign.
    """
    node: Any = loss.grad_fn
    if node.name() == _MEANS[0]:
        with suppress(UnknownGraphError):
            return _behind(node, loss.detach())
    for _ in range(_MOST_NODES):
        value = _of_distance(node)
        if value is not None:
            return _behind(node.next_functions[0][0], value)
        node = _next_of_loss(node)
    raise UnknownGraphError


def _of_distance(node: Any) -> Tensor | None:
    """Return what a node computes the squares or sizes of; None if it computes something else."""
    name = node.name()
    is_square = name == "PowBackward0" and node._saved_exponent == 2  # noqa: PLR2004, SLF001
    if name == "MulBackward0":
        first, second = node.next_functions
        is_square = first[0] is not None and first == second
    return saved_by(node, "self") if is_square or name == "AbsBackward0" else None


def _next_of_loss(node: Any) -> Any:
    """Return what a part of a loss is computed of, if that is one thing but for constants."""
    name, before = node.name(), _only_one_before(node)
    is_root = name == "SqrtBackward0" or (name == "PowBackward0" and node._saved_exponent == 0.5)  # noqa: PLR2004, SLF001
    if is_root and before.name() == "AddBackward0":  # lest it be the root of 0
        return _only_one_before(before)
    if name in _PRODUCTS:
        is_first = node.next_functions[0][0] is before
        is_known = saved_by(node, "other" if is_first else "self").numel() == 1
        is_known &= is_first or name == "MulBackward0"
    else:
        is_known = is_root or name in _REDUCED or name in RESHAPED
    if not is_known:
        raise UnknownGraphError
    return before


def _only_one_before(node: Any) -> Any:
    graph = [before for before, _ in node.next_functions if before is not None]
    if len(graph) != 1:
        raise UnknownGraphError
    return graph[0]


def _behind(node: Any, value: Tensor) -> _Difference:
    """Return the difference that stands behind views, or behind a mean of it."""
    is_mean = False
    for _ in range(_MOST_NODES):
        name, shape = node.name(), shape_of(node)
        if name in ("SubBackward0", "RsubBackward1"):
            return _Difference(value if is_mean else value.reshape(shape), node, is_mean)
        before = node.next_functions[0][0]
        if name in _MEANS and not is_mean and value.numel() == 1:
            # The only row of a batch has a mean of its own.
            is_mean = name == _MEANS[0] or len(shape_of(before)) == 1
            if not is_mean:
                raise UnknownGraphError
        elif name not in RESHAPED:
            raise UnknownGraphError
        node = before
    raise UnknownGraphError


def _seen_in(node: Any, known: Sequence[_Output]) -> _Seen:
    """Return the model output from which a node subtracts a constant."""
    at = [number for number, (before, _) in enumerate(node.next_functions) if before is not None]
    if len(at) != 1 or node._saved_alpha != 1:  # noqa: SLF001 - no public way
        raise UnknownGraphError
    sign = 1 if node.name() == "SubBackward0" and at[0] == 0 else -1
    before, number = node.next_functions[at[0]]
    views: list[Any] = []
    for _ in range(_MOST_NODES):
        for output in known:
            if output.node is before and output.number == number:
                if output.versions != versions_of([output.value]):
                    raise UnknownGraphError
                return _Seen(output.value, viewed(output.value, views), views, sign)
        if before.name() not in RESHAPED and before.name() not in SELECTED:
            raise UnknownGraphError
        views.append(before)
        before, number = before.next_functions[0]
    raise UnknownGraphError


def _compared(seen: _Seen, difference: Tensor) -> tuple[Tensor, Tensor]:
    """Return outputs and targets, these without rounding, and not spread over the outputs."""
    outputs = seen.part
    if difference.dtype not in (torch.float32, torch.float64):
        raise UnknownGraphError  # too little is left of targets
    scale = torch.maximum(outputs.abs(), difference.abs())
    targets = _tidied(outputs - seen.sign * difference, scale)
    if targets.numel() != outputs.numel():
        if any(node.name() == _ADDED_DIMENSION for node in seen.views):
            raise UnknownGraphError  # who writes it so may want all pairs
        return outputs, _not_spread(targets, scale, outputs.shape)
    if any(node.name() in SELECTED for node in seen.views):
        return _in_order(seen, targets)
    return seen.whole, targets.reshape(seen.whole.shape)


def _in_order(seen: _Seen, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return outputs and targets in the order of the outputs, if these are only in another one."""
    is_whole = seen.part.numel() == seen.whole.numel()
    if not is_whole or any(node.name() in _REPEATED for node in seen.views):
        return seen.part, targets
    places = torch.arange(targets.numel(), device=targets.device).view(seen.whole.shape)
    places = viewed(places, seen.views).reshape(-1)
    ordered = torch.empty_like(targets.reshape(-1)).scatter_(0, places, targets.reshape(-1))
    return seen.whole, ordered.view(seen.whole.shape)


def _not_spread(targets: Tensor, scale: Tensor, shape: Sequence[int]) -> Tensor:
    """Return the targets [..., B] of [..., B, B] differences from outputs of a shape [..., B, 1].

    Others are meant so, as levels of which each output has a distance.
    """
    shape = (*[1] * (targets.dim() - len(shape)), *shape)
    grown = [size for own, size in zip(shape, targets.shape, strict=True) if own != size]
    spread = [at for at, size in enumerate(shape) if [size] == grown]
    if len(spread) != 1:
        raise UnknownGraphError
    own = targets.narrow(spread[0], 0, 1)
    is_spread = ((targets - own).abs() <= 2 * _CLOSE * scale).all()
    if is_spread.device.type != "cpu":
        own = torch.where(is_spread, own, torch.zeros_like(own))
    elif not is_spread:
        raise UnknownGraphError
    while own.dim() > 1 and own.shape[0] == 1:
        own = own[0]
    return own


def _tidied(targets: Tensor, scale: Tensor) -> Tensor:
    """Return targets without the rounding of numbers so large, if all are whole, or one number."""
    whole, rounding = targets.round(), (_CLOSE * scale).clamp(max=_MOST_ROUNDED)
    are_whole = ((targets - whole).abs() <= rounding).all()
    targets = torch.where(are_whole, whole + 0.0, targets)  # there is a zero below zero, too
    best = torch.take(targets, scale.argmin())
    are_one = ((targets - best).abs() <= _SAME * scale).all()
    return torch.where(are_one, best, targets)
