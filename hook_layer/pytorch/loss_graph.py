"""Finds the function calls that a loss is computed from, by node names in the autograd graph.

Between the call and the loss, only these are allowed: views, copies, means and sums of elements,
products with a constant, sums and differences.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from torch import Tensor

__all__ = ["Terms", "terms_of"]

_RESHAPES: Final = frozenset(
    f"{name}Backward{number}"
    for name, numbers in (
        *((name, (0,)) for name in ("View", "UnsafeView", "ReshapeAlias", "Unsqueeze", "Alias")),
        *((name, (0,)) for name in ("Clone", "ToCopy")),
        ("Squeeze", (0, 1, 2)),
    )
    for number in numbers
)
"""Nodes that keep the elements and their order."""
_REDUCTIONS: Final = frozenset(f"{name}Backward{n}" for name in ("Mean", "Sum") for n in (0, 1))
_PRODUCTS: Final = frozenset({"MulBackward0", "DivBackward0"})
_SUMS: Final = frozenset(f"{n}Backward0" for n in ("Neg", "Add", "Sub")) | {"RsubBackward1"}
_LINEAR: Final = _RESHAPES | _REDUCTIONS | _PRODUCTS | _SUMS
"""Nodes that are linear in a term of the loss."""
_MOST_NODES: Final = 64


class Terms(NamedTuple):
    """The calls that a loss is the sum of.

    Attributes:
        places: Index of each call.
        is_multiplied: Whether the script multiplies any of them.
        is_partial: Whether the sum has other terms.
    """

    places: list[int]
    is_multiplied: bool = False
    is_partial: bool = False


def terms_of(loss: Tensor, nodes: Sequence[Any], *, is_scaled: bool = False) -> Terms:
    """Return the calls that a loss is a weighted sum of; no places if there are none.

    Args:
        loss: Start of a backward pass, one element.
        nodes: Graph nodes of the calls.
        is_scaled: Whether a gradient scaler has multiplied the loss.
    """
    known = {id(node): place for place, node in enumerate(nodes)}
    places: dict[int, None] = {}
    num_products, is_partial = -int(is_scaled), False
    waiting = [loss.grad_fn]
    for _ in range(_MOST_NODES):
        if not waiting:
            return Terms([*places], num_products > 0, is_partial)
        node = waiting.pop()
        place = known.get(id(node))
        if place is not None:
            places[place] = None
            continue
        following = _linear(node)
        is_partial |= not following
        num_products += node is not None and node.name() in _PRODUCTS
        waiting += reversed(following)
    return Terms([])


def _linear(node: Any) -> list[Any]:
    """Return the terms of a linear node; an empty list for any other node."""
    name = "" if node is None else node.name()
    if name not in _LINEAR:
        return []
    following = [before for before, _ in node.next_functions if before is not None]
    is_product_of_both = name in _PRODUCTS and len(following) > 1
    is_divisor = name == "DivBackward0" and node.next_functions[0][0] is None
    return [] if is_product_of_both or is_divisor else following
