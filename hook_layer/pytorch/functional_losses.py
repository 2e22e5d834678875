"""What a loss that no module computes, as `F.cross_entropy(...)`, was computed of.

The graph that a backward pass is about to go through still has it: a node such as
`NllLossBackward0` keeps the targets of its function, and mostly what they are compared with. It is
looked for from the loss on, behind nothing but views, copies, means, sums of elements, and products
with a constant from 0 to 1. So a loss is at most what the function returns for these inputs: not a
sum of it and something else, nor the product with a reward, of which rules could tell nothing.

What torch keeps in another place (activation checkpointing, offloading) is left there.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from torch import Tensor

__all__ = ["inputs_of"]

_OF_CLASSES: Final = frozenset({"NllLossBackward0", "NllLoss2DBackward0"})
_OF_PAIRS: Final = frozenset(
    f"{name}Backward0"
    for name in (
        "MseLoss",
        "SmoothL1Loss",
        "HuberLoss",
        "BinaryCrossEntropy",
        "BinaryCrossEntropyWithLogits",
    )
)
_VIEWS: Final = frozenset(
    f"{name}Backward0" for name in ("View", "UnsafeView", "ReshapeAlias", "Squeeze", "Unsqueeze")
)
_PASSED: Final = _VIEWS | {
    f"{name}Backward0" for name in ("Alias", "Clone", "ToCopy", "Mean", "Sum")
}
_LOG_SOFTMAX: Final = "LogSoftmaxBackward0"
_MOST_NODES: Final = 32
_OF_IMAGES: Final = 4


class _UnknownError(Exception):
    """The graph is not one of those that are understood."""


def inputs_of(loss: Tensor, scale: Tensor | None = None) -> dict[int, Tensor]:
    """Return what a loss was computed of, detached, by the number that a loss module gives it.

    1 are the targets; 0 is what they are compared with, where the function got it as it is: of a
    cross entropy there are only logarithms of probabilities, which it did not get.

    Args:
        loss: What a backward pass is about to start from, one element.
        scale: By what a gradient scaler has multiplied it.

    Returns:
        Nothing where that is not known.
    """
    # What torch keeps, and how, differs by version; a tensor changed in place is not given out.
    with suppress(
        _UnknownError, ArithmeticError, AttributeError, RuntimeError, TypeError, ValueError
    ):
        node = _computing(loss.grad_fn, scale)
        return _of_classes(node) if node.name() in _OF_CLASSES else _of_pairs(node)
    return {}


def _computing(node: Any, scale: Tensor | None) -> Any:
    """Return the node of the function that a loss is of, maybe times a constant from 0 to 1."""
    times = 1.0
    for _ in range(_MOST_NODES):
        if node is None:
            break
        name = node.name()
        if name in _OF_CLASSES or name in _OF_PAIRS:
            if not 0 < times <= 1:
                raise _UnknownError
            return node
        if name in ("MulBackward0", "DivBackward0"):
            times *= _factor(node, scale)
        elif name not in _PASSED:
            break
        node = next(before for before, _ in node.next_functions if before is not None)
    raise _UnknownError


def _factor(node: Any, scale: Tensor | None) -> float:
    """Return the constant that a product or quotient has, without waiting for a device."""
    is_quotient = node.name() == "DivBackward0"
    is_graph = [before is not None for before, _ in node.next_functions]
    if sum(is_graph) != 1 or (is_quotient and not is_graph[0]):
        raise _UnknownError
    constant = _saved(node, "other" if is_graph[0] else "self")
    if constant.numel() != 1:
        raise _UnknownError
    if scale is not None and constant.data_ptr() == scale.data_ptr():
        return 1.0
    if constant.device.type != "cpu":
        if is_quotient and not constant.is_floating_point():
            return 1.0  # a number of elements
        raise _UnknownError
    return 1 / float(constant) if is_quotient else float(constant)


def _of_classes(node: Any) -> dict[int, Tensor]:
    logarithms, targets = _saved(node, "self"), _saved(node, "target")
    if logarithms.dim() == _OF_IMAGES and logarithms.shape[2] == 1 == targets.shape[1]:
        targets = targets.squeeze(1)  # of [B, C, L] torch makes [B, C, 1, L]
    before = node.next_functions[0][0]
    while before is not None and before.name() in _VIEWS:
        before = before.next_functions[0][0]
    if before is None or before.name() == _LOG_SOFTMAX:
        return {1: targets}
    return {0: logarithms, 1: targets}


def _of_pairs(node: Any) -> dict[int, Tensor]:
    outputs, targets = (before for before, _ in node.next_functions[:2])
    if outputs is None or targets is not None:
        raise _UnknownError  # what is learned itself is no target
    return {number: _given(_saved(node, name)) for number, name in enumerate(("self", "target"))}


def _saved(node: Any, name: str) -> Tensor:
    """Return what a node keeps, detached, if it keeps it itself."""
    if getattr(node, f"_raw_saved_{name}").unpack_hook is not None:
        raise _UnknownError
    tensor = getattr(node, f"_saved_{name}")
    if not isinstance(tensor, Tensor):
        raise _UnknownError
    return tensor.detach()


def _given(tensor: Tensor) -> Tensor:
    """Return a tensor as it was before it was spread over others; leading dimensions of 1 go."""
    while tensor.dim() and tensor.stride(0) == 0 and tensor.shape[0] > 1:
        tensor = tensor[0]
    for axis, step in enumerate(tensor.stride()):
        if step == 0 and tensor.shape[axis] > 1:
            tensor = tensor.narrow(axis, 0, 1)
    return tensor
