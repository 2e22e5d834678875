"""What views in the graph of a loss make of a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor

from hook_layer.pytorch.loss_graph import UnknownGraphError, saved_by

__all__ = ["RESHAPED", "SELECTED", "shape_of", "signed", "viewed"]

_SIGN_BIT: Final = 1 << 63
RESHAPED: Final = frozenset(
    f"{name}Backward{number}"
    for name, numbers in (
        *((name, (0,)) for name in ("View", "UnsafeView", "ReshapeAlias", "Unsqueeze")),
        *((name, (0,)) for name in ("Alias", "Clone", "ToCopy")),
        ("Squeeze", (0, 1, 2)),
    )
    for number in numbers
)
"""Nodes of what leaves the elements as they are, in their order."""
SELECTED: Final = frozenset(
    f"{name}Backward0"
    for name in ("Select", "Slice", "Transpose", "Permute", "T", "Gather", "Index")
)
"""Nodes of what puts elements into another order, or leaves some out."""


def viewed(value: Tensor, views: Sequence[Any]) -> Tensor:
    """Return what becomes of a tensor by views.

    Args:
        value: The tensor.
        views: The nodes that the views made, the last one first.

    Raises:
        UnknownGraphError: Of one of them nobody knows.
    """
    for node in reversed(views):
        name = node.name()
        if name in RESHAPED:
            value = value.reshape(shape_of(node))
        elif name == "SelectBackward0":
            value = value.select(signed(node._saved_dim), signed(node._saved_index))  # noqa: SLF001
        elif name == "SliceBackward0":
            start, end = signed(node._saved_start), signed(node._saved_end)  # noqa: SLF001
            places: list[slice] = [slice(None)] * value.dim()
            places[signed(node._saved_dim)] = slice(start, end, node._saved_step)  # noqa: SLF001
            value = value[tuple(places)]
        elif name == "TransposeBackward0":
            value = value.transpose(signed(node._saved_dim0), signed(node._saved_dim1))  # noqa: SLF001
        elif name == "PermuteBackward0":
            value = value.permute([signed(dim) for dim in node._saved_dims])  # noqa: SLF001
        elif name == "TBackward0":
            value = value.t()
        elif name == "GatherBackward0":
            value = value.gather(signed(node._saved_dim), saved_by(node, "index"))  # noqa: SLF001
        else:
            value = value[_indices(node)]
        if value.shape != shape_of(node):
            raise UnknownGraphError
    return value


def _indices(node: Any) -> tuple[Any, ...]:
    """Return the places that an index picks; those of a mask would have to be counted."""
    if any(raw is not None and raw.unpack_hook is not None for raw in node._raw_saved_indices):  # noqa: SLF001
        raise UnknownGraphError
    places = tuple(slice(None) if each is None else each for each in node._saved_indices)  # noqa: SLF001
    if any(isinstance(each, Tensor) and each.dtype != torch.int64 for each in places):
        raise UnknownGraphError
    return places


def shape_of(node: Any) -> torch.Size:
    """Return the shape of what a node computed.

    Args:
        node: A node of a graph.
    """
    return torch.Size(node._input_metadata[0].shape)  # noqa: SLF001 - no public way


def signed(number: int) -> int:
    """Return a place as it was given; torch tells those from the end as huge numbers.

    Args:
        number: What a node keeps of a place.
    """
    return number - 2 * _SIGN_BIT if number >= _SIGN_BIT else number
