"""Finds this rank's part of parameters that ranks share.

Ranks share them as DTensors, as flat parameters of FullyShardedDataParallel (FSDP1), or by
DeepSpeed's ZeRO stage 3.
"""

from __future__ import annotations

import gc
import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import Tensor, nn

from hook_layer.format.statistics_block import Shard
from hook_layer.pytorch.tensor_elements import is_distributed
from hook_layer.pytorch.wrappers import unwrapped_path

__all__ = ["FlatPart", "FlatParts", "first_of_shard_groups", "shard_of", "zero_part"]

_FLAT_PARAMETERS: Final = "torch.distributed.fsdp._flat_param"


def shard_of(tensor: Tensor) -> Shard | None:
    """Return the position of this rank's part in a DTensor; None if it has the whole tensor."""
    if not is_distributed(tensor):
        return None
    known: Any = tensor
    mesh, placements = known.device_mesh, known.placements
    divided = [dim for dim, each in enumerate(placements) if not each.is_replicate()]
    divided = [dim for dim in divided if mesh.size(dim) > 1]
    if not divided:
        return None
    place = mesh.get_coordinate()
    is_sum = any(placements[dim].is_partial() for dim in divided)
    part = None if is_sum or place is None else tuple(place[dim] for dim in divided)
    return Shard(tuple(map(int, tensor.shape)), part)


def first_of_shard_groups(parameters: Iterable[Tensor]) -> set[int]:
    """Return the first rank of each group of ranks that share these parameters.

    Mesh dimensions without sharding, such as pipeline stages and replicas, have one group per
    position.
    """
    divided: dict[int, tuple[Any, set[str]]] = {}
    for each in parameters:
        known: Any = each
        if not is_distributed(each) or not known.device_mesh.mesh_dim_names:
            continue
        mesh = known.device_mesh
        root, names = divided.setdefault(id(_root(mesh)), (_root(mesh), set()))
        placements = zip(mesh.mesh_dim_names, known.placements, strict=True)
        names.update(name for name, placement in placements if placement.is_shard())
    first: set[int] = set()
    for root, names in divided.values():
        place = tuple(0 if name in names else slice(None) for name in root.mesh_dim_names)
        first.update(root.mesh[place].flatten().tolist())
    return first


def zero_part(parameter: Tensor) -> tuple[Tensor, Shard | None] | None:
    """Return this rank's part of a parameter of DeepSpeed's ZeRO stage 3, and its position.

    Such a parameter is empty outside its layer's forward and backward pass. `ds_tensor` has this
    rank's part, padded to the same size in all ranks. Plain parameters do not have it: None.
    """
    known: Any = parameter
    part = getattr(known, "ds_tensor", None)
    if part is None:
        return None
    group = getattr(known, "ds_process_group", None)
    rank, size = torch.distributed.get_rank(group), torch.distributed.get_world_size(group)
    flat, shape = part.detach().view(-1), tuple(map(int, known.ds_shape))
    own = flat[: min(max(int(known.ds_numel) - rank * flat.numel(), 0), flat.numel())]
    return (own.view(shape), None) if size == 1 else (own, Shard(shape, (rank,)))


@dataclass(frozen=True)
class FlatPart:
    """This rank's part of one original parameter.

    Attributes:
        path: Path of the parameter below the wrapped module.
        shape: Shape of the whole parameter.
        rank: Index of this rank among those that share the flat parameter; None if none do.
        start: Start of the part in this rank's piece of the flat parameter.
        size: Number of elements of the part.
        flat_size: Elements of that piece; None if the model lists the original parameter.
    """

    path: str
    shape: tuple[int, ...]
    rank: int | None
    start: int
    size: int
    flat_size: int | None

    def of(self, tensor: Tensor) -> tuple[Tensor, Shard | None]:
        """Return this rank's part of a parameter, gradient or optimizer state, and its position.

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
    """The original parameters of all flat parameters of this process.

    A flat parameter concatenates several parameters, and each rank has one piece of it. With
    `use_orig_params=True` the model lists the original parameters, each with this rank's part.
    Without it, the model lists only the flat parameter.
    """

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
    kind = getattr(sys.modules.get(_FLAT_PARAMETERS), "FlatParamHandle", None)
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


def _root(mesh: Any) -> Any:
    """Return the mesh that a submesh was taken from; torch has no public way."""
    find = getattr(mesh, "_get_root_mesh", None)
    if find is not None:
        return find()
    from torch.distributed.device_mesh import _mesh_resources  # noqa: PLC0415 - removed in torch 2.9

    return _mesh_resources.get_root_mesh(mesh)
