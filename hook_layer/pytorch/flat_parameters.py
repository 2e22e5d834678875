"""Finds the original parameters in the flat parameters of FullyShardedDataParallel (FSDP1).

A flat parameter concatenates several parameters, and each rank has one piece of it. With
`use_orig_params=True` the model lists the original parameters, each with this rank's part. Without
it, the model lists only the flat parameter.
"""

from __future__ import annotations

import gc
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import Tensor, nn

from hook_layer.format.statistics_block import Shard
from hook_layer.pytorch.wrappers import unwrapped_path

__all__ = ["FlatPart", "FlatParts"]

_MODULE: Final = "torch.distributed.fsdp._flat_param"


@dataclass(frozen=True)
class FlatPart:
    """This rank's part of one original parameter.

    Attributes:
        path: Path of the parameter below the wrapped module.
        shape: Shape of the whole parameter.
        rank: Index of this rank among those that share the flat parameter; None if it is not
            shared.
        start: Start of the part in this rank's piece of the flat parameter.
        size: Number of elements of the part.
        flat_size: Number of elements of this rank's piece of the flat parameter; None if the model
            lists the original parameter.
    """

    path: str
    shape: tuple[int, ...]
    rank: int | None
    start: int
    size: int
    flat_size: int | None

    def of(self, tensor: Tensor) -> tuple[Tensor, Shard | None]:
        """Return this rank's part of a tensor, and its position in the whole parameter.

        Args:
            tensor: This rank's parameter, flat or original, or its gradient or optimizer state.

        Raises:
            ValueError: The size matches neither form, such as between forward and backward pass.
        """
        num_elements, whole = tensor.numel(), math.prod(self.shape)
        if num_elements == self.flat_size:
            part = tensor.detach().view(-1)[self.start : self.start + self.size]
        elif num_elements in (self.size, whole):
            part = tensor.detach()
        elif not tensor.dim():  # the step count in Adam's state
            return tensor, None
        else:
            raise ValueError(
                f"{num_elements} elements are neither one rank's shard nor all {whole}"
            )
        is_whole = self.rank is None or part.numel() != self.size
        part = part.view(self.shape) if part.numel() == whole else part
        return part, None if is_whole or self.rank is None else Shard(self.shape, (self.rank,))


class FlatParts:
    """The original parameters of all flat parameters of this process."""

    def __init__(self) -> None:
        self._original: dict[int, FlatPart] = {}
        self._flat: dict[int, list[FlatPart]] = {}
        for handle in _handles():
            parts = list(_parts(handle))
            self._flat[id(handle.flat_param)] = parts
            # None without `use_orig_params`.
            for parameter, part in zip(handle.flat_param._params or (), parts, strict=False):  # noqa: SLF001
                self._original[id(parameter)] = replace(part, flat_size=None)

    def named(self, path: str, parameter: nn.Parameter) -> dict[str, FlatPart | None]:
        """Return the original parameters of a model's parameter by path; None for a plain one."""
        flat = self._flat.get(id(parameter))
        if flat is None:
            return {path: self._original.get(id(parameter))}
        prefix = path.rpartition(".")[0]
        return {f"{prefix}.{part.path}" if prefix else part.path: part for part in flat}


def _handles() -> Iterator[Any]:
    kind = getattr(sys.modules.get(_MODULE), "FlatParamHandle", None)
    if kind is not None and torch.distributed.is_initialized():
        yield from (thing for thing in gc.get_objects() if type(thing) is kind)


def _parts(handle: Any) -> Iterator[FlatPart]:
    flat, group = handle.flat_param, handle.process_group
    root, size = handle._fully_sharded_module, math.prod(flat._sharded_size)  # noqa: SLF001
    rank = group.rank() if handle.uses_sharded_strategy and group.size() > 1 else None
    infos = zip(flat._fqns, flat._shapes, flat._shard_param_infos, strict=True)  # noqa: SLF001
    for path, shape, info in infos:
        start, count = info.offset_in_shard or 0, info.numel_in_shard or 0
        yield FlatPart(unwrapped_path(root, path), tuple(shape), rank, start, count, size)
