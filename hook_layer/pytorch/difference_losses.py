"""Squared differences that a script writes itself, as `((model(x) - y) ** 2).mean()`.

No function call shows what such a loss compares. So in steps that are saved the subtraction is
looked for in the graph of the loss, and gets a hook. In the backward pass that hook is given the
gradient G of the difference D between outputs and targets. A mean or sum of squares is
L = c sum(D^2), with G = 2 c D, so c = sum(G^2) / (4 L) and D = G / (2 c). The root of a mean of
squares has G = D / (n L), so n sum(G^2) = 1. Other losses have another G, and nothing is said of
them. Nor is it of differences between something else than a constant and what the model returned,
but for its shape; nor of compiled models.

Targets are good to the rounding of the difference. Where all of them lie so close to whole numbers,
or to one number, they become these. Outputs have the shape in which the model returned them, and so
have targets. Where the difference has more elements, as of [B, 1] and [B], the targets are what
does not vary along with the outputs.

On a device the kind of a loss is known one saved step later, so that training never waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isclose
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from hook_layer.pytorch.calls import tensors_in, versions_of
from hook_layer.pytorch.host_copy import HostCopy
from hook_layer.pytorch.loss_graph import LINEAR, RESHAPES
from hook_layer.pytorch.values import is_distributed

__all__ = ["DifferenceLosses"]

_MOST_OUTPUTS: Final = 8
_MOST_NODES: Final = 16
_MOST_PASSES: Final = 64
"""Passes of an accumulation by whose number a loss may be divided."""
_EXACT: Final = 1e-4
"""Relative difference up to which a factor is one of those of squares: float32 has 7 digits."""
_CLOSE: Final = 1e-5
_SAME: Final = 1e-6
_MOST_ROUNDED: Final = 1e-2
_POWERS: Final = frozenset({"PowBackward0", "SqrtBackward0"})
_BEFORE: Final = LINEAR | _POWERS
"""Nodes that may stand between the loss and the difference."""
_ADDED_DIMENSION: Final = "UnsqueezeBackward0"
_DIFFERENCES: Final = frozenset({"SubBackward0", "RsubBackward1"})


class _Output(NamedTuple):
    """What a model returned: its node of the graph, the number there, and what was written to."""

    value: Tensor
    node: Any
    number: int
    versions: tuple[int, ...]


class _Difference(NamedTuple):
    """A subtraction: the output in it, the views of that, and the sign that it has."""

    output: _Output
    views: tuple[str, ...]
    sign: int


class DifferenceLosses:
    """What a model returned in a step that is saved, until the backward pass is over."""

    def __init__(self) -> None:
        self._outputs: list[_Output] = []
        self._is_waiting = False
        self._found: tuple[_Difference, Tensor] | None = None
        self._gradient: Tensor | None = None
        self._handle: Any = None
        self._coming: list[HostCopy] = []
        self._kind: float | None = None
        self._has_root = False

    @property
    def is_waiting(self) -> bool:
        """Whether the output of the model is awaited."""
        return self._is_waiting

    @property
    def awaits_gradient(self) -> bool:
        """Whether the gradient of a difference is awaited."""
        return self._found is not None

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
        self._found = self._gradient = None
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def watch(self, loss: Tensor, unscaled: Tensor) -> None:
        """Wait for the gradient of the difference that a loss is of, if it is of one.

        Args:
            loss: What a backward pass is about to start from, one element.
            unscaled: The same without the factor of a gradient scaler, detached.
        """
        outputs = self._outputs
        self.forget()
        if not outputs or is_distributed(loss) or loss.dtype not in (torch.float32, torch.float64):
            return
        node, self._has_root = _difference_in(loss.grad_fn)
        difference = None if node is None else _output_in(node, outputs)
        if node is None or difference is None:
            return
        self._found = difference, unscaled / loss.detach()
        self._handle = node.register_prehook(self._arrived)
        self._loss = unscaled

    def _arrived(self, gradients: Sequence[Tensor | None]) -> None:
        if gradients[0] is not None:
            self._gradient = gradients[0].detach()

    def take(self) -> tuple[Tensor, ...]:
        """Return outputs and targets of the loss, detached; nothing if they are not known."""
        found, gradient = self._found, self._gradient
        self.forget()
        if found is None or gradient is None:
            return ()
        (output, views, sign), unscaling = found
        if output.versions != versions_of([output.value]):
            return ()
        with torch.no_grad():
            gradient = gradient * unscaling
            factor = self._factor(gradient)
            if factor is None:
                return ()
            return _compared(output.value, sign * factor * gradient, views)

    def _factor(self, gradient: Tensor) -> Tensor | None:
        """Return what makes the difference of its gradient; None for another kind of loss."""
        squares, size = gradient.double().square().sum(), gradient.numel()
        constant = squares / (4 * self._loss.double())
        numbers = torch.stack([constant, squares * size])
        self._coming.append(HostCopy(numbers) if numbers.is_cuda else HostCopy.of_host(numbers))
        while self._coming and self._coming[0].has_arrived():
            constant_then, root = self._coming.pop(0).array().tolist()
            shape = tuple(gradient.shape)
            self._kind = _kind(constant_then, root if self._has_root else 0.0, shape)
        if self._kind is None:
            return None
        factor = size * self._loss.double() if self._kind == 0 else 1 / (2 * constant)
        return factor.to(gradient.dtype)


def _kind(constant: float, root: float, shape: Sequence[int]) -> float | None:
    """Return the factor of a sum of squares, 0 for the root of their mean; None for other losses.

    Args:
        constant: What c is if the loss is such a sum.
        root: What is 1 for such a root.
        shape: Shape of the difference.
    """
    size, rows = torch.Size(shape).numel(), shape[0] if shape else 1
    for divisor in (size, 2 * size, rows, 2 * rows, 1, 2):
        passes = 1 / (constant * divisor) if constant > 0 else 0.0
        if 1 <= round(passes) <= _MOST_PASSES and isclose(passes, round(passes), rel_tol=_EXACT):
            return constant
    return 0.0 if isclose(root, 1, rel_tol=_EXACT) else None


def _may_be_compared(value: Tensor) -> bool:
    """Return whether what a model returned can be learned, and is known not to be probabilities.

    Rules take dimension 1 of probabilities for that of the classes. Of a script's own distance it
    need not be.
    """
    node = value.grad_fn
    return node is not None and (node.name() != "SoftmaxBackward0" or value.dim() == 2)  # noqa: PLR2004


def _difference_in(node: Any) -> tuple[Any, bool]:
    """Return the subtraction of whose squares a loss is computed, and whether a root is taken.

    Nothing but constants may stand between the loss and the squares, nor but a shape between these
    and the subtraction.
    """
    num_powers, is_square = 0, False
    for _ in range(_MOST_NODES):
        name = "" if node is None else node.name()
        if name in _DIFFERENCES:
            return node if is_square else None, num_powers > 1
        following = (
            {} if node is None else {n: None for n, _ in node.next_functions if n is not None}
        )
        if name not in _BEFORE or len(following) != 1:
            break
        is_product = name == "MulBackward0" and all(n is not None for n, _ in node.next_functions)
        if name not in RESHAPES:
            is_square = name in _POWERS or is_product
        num_powers += is_square and name not in RESHAPES
        node = next(iter(following))
    return None, False


def _output_in(node: Any, known: Sequence[_Output]) -> _Difference | None:
    """Return the model output from which a node subtracts a constant, or the other way round."""
    at = [number for number, (before, _) in enumerate(node.next_functions) if before is not None]
    if len(at) != 1:
        return None
    sign = 1 if node.name() == "SubBackward0" and at[0] == 0 else -1
    before, number = node.next_functions[at[0]]
    views: list[str] = []
    while len(views) < _MOST_NODES:
        for output in known:
            if output.node is before and output.number == number:
                return _Difference(output, tuple(views), sign)
        if before is None or before.name() not in RESHAPES:
            break
        views.append(before.name())
        before, number = before.next_functions[0]
    return None


def _compared(outputs: Tensor, difference: Tensor, views: Sequence[str]) -> tuple[Tensor, ...]:
    """Return outputs and targets, these without rounding, and not spread over the outputs."""
    if difference.numel() == outputs.numel():
        difference = difference.reshape(outputs.shape)
        return outputs, _tidied(
            outputs - difference, torch.maximum(outputs.abs(), difference.abs())
        )
    if _ADDED_DIMENSION in views:  # who writes it so may want all pairs
        return ()
    part = outputs.reshape(-1) if views else outputs
    scale = torch.maximum(part.abs(), difference.abs())
    targets = _not_spread(_tidied(part - difference, scale), scale, part.shape)
    return () if targets is None else (part, targets)


def _not_spread(targets: Tensor, scale: Tensor, shape: Sequence[int]) -> Tensor | None:
    """Return the targets [..., B] of [..., B, B] differences from outputs of a shape [..., B, 1].

    Others are meant so, as levels of which each output has a distance.
    """
    shape = (*[1] * (targets.dim() - len(shape)), *shape)
    grown = [size for own, size in zip(shape, targets.shape, strict=True) if own != size]
    spread = [at for at, size in enumerate(shape) if [size] == grown]
    if len(spread) != 1:
        return None
    own = targets.narrow(spread[0], 0, 1)
    is_spread = ((targets - own).abs() <= 2 * _CLOSE * scale).all()
    if is_spread.device.type != "cpu":
        own = torch.where(is_spread, own, torch.zeros_like(own))
    elif not is_spread:
        return None
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
