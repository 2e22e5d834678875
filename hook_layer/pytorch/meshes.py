"""Finds this rank's part of a model, from DTensor meshes and pipelines."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable
from typing import Any, Final

from torch import Tensor, nn

from hook_layer.pytorch.values import is_distributed

__all__ = ["PIPELINE_MODULE", "first_of_shard_groups", "is_inferring_shapes", "stage_of"]

PIPELINE_MODULE: Final = "torch.distributed.pipelining.stage"
_INFERENCES: Final = frozenset({"_shape_inference", "_forward_metadata_inference"})
"""Pipeline functions that call the model to infer shapes, in different versions of torch."""


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


def stage_of(model: nn.Module) -> int | None:
    """Return the index of the pipeline stage of a model; None if it is not a stage."""
    kind = getattr(sys.modules.get(PIPELINE_MODULE), "_PipelineStageBase", None)
    if kind is None:
        return None
    stages = (thing for thing in gc.get_objects() if issubclass(type(thing), kind))
    return next((s.stage_index for s in stages if s.submod in (model, *model.modules())), None)


def is_inferring_shapes() -> bool:
    """Return whether a pipeline calls the model with uninitialized memory, to infer shapes."""
    module = sys.modules.get(PIPELINE_MODULE)
    if module is None:
        return False
    frame = sys._getframe(1)  # noqa: SLF001 - documented, and cheap
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_filename == module.__file__ and frame.f_code.co_name in _INFERENCES:
            return True
    return False


def _root(mesh: Any) -> Any:
    """Return the mesh that a submesh was taken from; torch has no public way."""
    find = getattr(mesh, "_get_root_mesh", None)
    if find is not None:
        return find()
    from torch.distributed.device_mesh import _mesh_resources  # noqa: PLC0415 - removed in torch 2.9

    return _mesh_resources.get_root_mesh(mesh)
