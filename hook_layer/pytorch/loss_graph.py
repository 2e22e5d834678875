"""Finds the function calls whose sum is the loss that a backward pass starts from.

Behind nothing but views, copies, means and sums of elements, products with a constant, and sums and
differences. What needs no gradient may be added, and what else there is to learn is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from torch import Tensor

__all__ = ["Term", "UnknownGraphError", "saved_by", "terms_of"]

_PASSED: Final = frozenset(
    f"{name}Backward0"
    for name in (
        *("View", "UnsafeView", "ReshapeAlias", "Squeeze", "Unsqueeze"),
        *("Alias", "Clone", "ToCopy", "Mean", "Sum"),
    )
)
_PRODUCTS: Final = ("MulBackward0", "DivBackward0")
_SUMS: Final = ("AddBackward0", "SubBackward0")
_NEGATIVES: Final = ("NegBackward0", "RsubBackward1")
_MOST_NODES: Final = 64


class _Known(Protocol):
    """What has a node of the graph."""

    @property
    def node(self) -> Any: ...


_K = TypeVar("_K", bound=_Known)


class Term(NamedTuple):
    """A part of a sum.

    Attributes:
        at: Which of the known calls it is.
        constant: By what it is multiplied.
        is_multiplied: Whether it is, by the script.
        is_shifted: Whether something that needs no gradient is added to the sum, 0 it may be.
        is_partial: Whether the sum has parts that are none of the calls.
    """

    at: int
    constant: float
    is_multiplied: bool
    is_shifted: bool = False
    is_partial: bool = False


class UnknownGraphError(Exception):
    """The graph is not one of those that are understood."""


def terms_of(loss: Tensor, known: Sequence[_K], scale: Tensor | None = None) -> list[Term]:
    """Return the calls that a loss is the sum of; nothing if it is no such sum.

    Args:
        loss: What a backward pass is about to start from, one element.
        known: The calls.
        scale: By what a gradient scaler has multiplied the loss.
    """
    # What torch keeps, and how, differs by version.
    with suppress(
        UnknownGraphError, ArithmeticError, AttributeError, RuntimeError, TypeError, ValueError
    ):
        return _terms(loss.grad_fn, [each.node for each in known], scale)
    return []


def _terms(node: Any, known: list[Any], scale: Tensor | None) -> list[Term]:
    found: list[Term] = []
    waiting = [(node, 1.0, False)]
    is_shifted = is_sum = is_partial = False
    for _ in range(_MOST_NODES):
        if not waiting:
            return [each._replace(is_shifted=is_shifted, is_partial=is_partial) for each in found]
        node, constant, is_multiplied = waiting.pop()
        if node is None:
            raise UnknownGraphError
        at = next((at for at, other in enumerate(known) if other is node), None)
        if at is not None:
            found.append(Term(at, constant, is_multiplied))
            continue
        before = [each for each, _ in node.next_functions]
        if node.name() in _SUMS:
            is_sum = True
            is_shifted |= None in before
            waiting += [
                (each, constant * sign, is_multiplied or sign != 1)
                for each, sign in zip(before, _signs(node), strict=False)
                if each is not None
            ]
            continue
        try:
            factor = _factor(node, scale)
        except UnknownGraphError:
            if not is_sum:
                raise
            is_partial = True
            continue
        following = next(each for each in before if each is not None)
        waiting.append((following, constant * (factor or 1.0), is_multiplied or factor is not None))
    raise UnknownGraphError


def _signs(node: Any) -> tuple[float, float]:
    """Return by what a sum or difference multiplies its parts."""
    if getattr(node, "_saved_alpha", 1) != 1:
        raise UnknownGraphError
    return (1.0, 1.0) if node.name() == "AddBackward0" else (1.0, -1.0)


def _factor(node: Any, scale: Tensor | None) -> float | None:
    """Return by which constant a node multiplies; None if it does not, as far as the script goes.

    It waits for no device.
    """
    if node.name() in _PASSED:
        return None
    if node.name() in _NEGATIVES:
        return -1.0
    if node.name() not in _PRODUCTS:
        raise UnknownGraphError
    is_quotient = node.name() == "DivBackward0"
    is_graph = [before is not None for before, _ in node.next_functions]
    if sum(is_graph) != 1 or (is_quotient and not is_graph[0]):
        raise UnknownGraphError
    constant = saved_by(node, "other" if is_graph[0] else "self")
    if constant.numel() != 1:
        raise UnknownGraphError
    if scale is not None and constant.data_ptr() == scale.data_ptr():
        return None
    if constant.device.type == "cpu":
        return (1 / float(constant) if is_quotient else float(constant)) or float("nan")
    if is_quotient and not constant.is_floating_point():
        return 1.0  # a number of elements, at least 1
    raise UnknownGraphError


def saved_by(node: Any, name: str) -> Tensor:
    """Return what a node keeps, detached, if it keeps it itself.

    Args:
        node: A node of a graph.
        name: Which of the tensors that its function was given.

    Raises:
        UnknownGraphError: It keeps none, or the script has it packed.
    """
    if getattr(node, f"_raw_saved_{name}").unpack_hook is not None:
        raise UnknownGraphError
    tensor = getattr(node, f"_saved_{name}")
    if not isinstance(tensor, Tensor):
        raise UnknownGraphError
    return tensor.detach()
