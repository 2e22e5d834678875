"""Whether this process trains as one of several that know each other."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

__all__ = ["is_one_of_several"]

_SIZES: Final = (
    "WORLD_SIZE",
    "HOROVOD_SIZE",
    "OMPI_COMM_WORLD_SIZE",
    "PMI_SIZE",
    "SLURM_STEP_NUM_TASKS",
)
"""Variables in which launchers tell each worker how many there are."""
_CLUSTER: Final = "TF_CONFIG"
"""Variable by which TensorFlow's workers find each other."""


def is_one_of_several(environ: Mapping[str, str] = os.environ) -> bool:
    """Tell whether there is a process group with others in it, or a launcher announced one.

    Some trainers make their group only once the training has begun, behind the hook. No framework
    is imported.

    Args:
        environ: The environment.
    """
    if environ.get(_CLUSTER, "").strip():
        return True
    if any(_is_several(environ.get(name, "")) for name in _SIZES):
        return True
    with suppress(Exception):  # a framework that is half imported, or of another version
        return any(size > 1 for size in (_of_torch(), _of_xgboost(), _of_jax()))
    return False


def _is_several(text: str) -> bool:
    return text.strip().isdecimal() and int(text) > 1


def _of_torch() -> int:
    group: Any = sys.modules.get("torch.distributed")
    if group is None or not group.is_available() or not group.is_initialized():
        return 1
    return int(group.get_world_size())


def _of_xgboost() -> int:
    group: Any = sys.modules.get("xgboost.collective")
    return 1 if group is None else int(group.get_world_size())


def _of_jax() -> int:
    jax: Any = sys.modules.get("jax")
    is_initialized = getattr(getattr(jax, "distributed", None), "is_initialized", None)
    # Without one the question would start JAX's devices.
    return int(jax.process_count()) if is_initialized is not None and is_initialized() else 1
