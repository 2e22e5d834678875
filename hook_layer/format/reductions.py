"""Names of the stored reductions of a tensor."""

from __future__ import annotations

from typing import Final

__all__ = ["REDUCTION_NAMES", "base_tensor_name", "reduction_tensor_name", "split_reduction_name"]

REDUCTION_NAMES: Final = (
    "min",
    "max",
    "mean",
    "median",
    "std",
    "variance",
    "sum",
    "prod",
    "l1",
    "l2",
)
_PREFIX: Final = "smdebug/reductions/"
_ABSOLUTE: Final = "abs_"


def reduction_tensor_name(base: str, reduction: str, *, absolute: bool) -> str:
    """Return the name of a stored reduction, e.g. `smdebug/reductions/abs_mean/conv`."""
    return f"{_PREFIX}{_ABSOLUTE if absolute else ''}{reduction}/{base}"


def split_reduction_name(name: str) -> tuple[str, str, bool] | None:
    """Return `(base tensor, reduction, absolute)`; None if `name` is not a reduction."""
    if not name.startswith(_PREFIX):
        return None
    reduction, _, base = name[len(_PREFIX) :].partition("/")
    absolute = reduction.startswith(_ABSOLUTE)
    reduction = reduction.removeprefix(_ABSOLUTE)
    if not base or reduction not in REDUCTION_NAMES:
        return None
    return base, reduction, absolute


def base_tensor_name(name: str) -> str:
    """Return the tensor of a reduction; any other name unchanged."""
    reduction = split_reduction_name(name)
    return name if reduction is None else reduction[0]
