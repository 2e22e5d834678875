"""Which reductions of a tensor are stored beside it, or instead of it; and the numpy ones."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hook_layer.errors import HookConfigurationError, nearest

__all__ = ["Reduction", "ReductionConfig", "reduce_array"]

Reduction = tuple[str, bool]
"""Name of a reduction (`mean`, `l2`, ...), and whether it is of the absolute values."""

_REDUCTIONS: Final = ("min", "max", "mean", "std", "variance", "sum", "prod")
_NORMS: Final = ("l1", "l2")
_NORM_SUFFIX: Final = "_norm"
_ABSOLUTE_PREFIX: Final = "abs_"
_FIELDS: Final = ("save_raw_tensor", "reductions", "save_shape")


class ReductionConfig:
    """Which reductions are stored for a tensor, and whether its value is.

    Args:
        reductions: Of `min max mean std variance sum prod`.
        abs_reductions: The same, of the absolute values.
        norms: Of `l1 l2`.
        abs_norms: The same, of the absolute values.
        save_raw_tensor: Whether the value itself is stored too. With no reductions and False, only
            the statistics that every index file carries are stored.
        save_shape: Whether the shape is stored (tensors with statistics always have one).

    Raises:
        HookConfigurationError: A name is unknown, or a flag no boolean.
    """

    def __init__(  # noqa: PLR0917 - the original's arguments
        self,
        reductions: Sequence[str] | None = None,
        abs_reductions: Sequence[str] | None = None,
        norms: Sequence[str] | None = None,
        abs_norms: Sequence[str] | None = None,
        save_raw_tensor: bool = False,
        save_shape: bool = False,
    ) -> None:
        self.reductions = _names("reductions", reductions, _REDUCTIONS)
        self.abs_reductions = _names("abs_reductions", abs_reductions, _REDUCTIONS)
        self.norms = _names("norms", norms, _NORMS)
        self.abs_norms = _names("abs_norms", abs_norms, _NORMS)
        self.save_raw_tensor = _flag("save_raw_tensor", save_raw_tensor)
        self.save_shape = _flag("save_shape", save_shape)

    def requested(self) -> list[Reduction]:
        """Return the reductions in the order in which they are stored."""
        plain = [(name, False) for name in (*self.reductions, *self.norms)]
        return plain + [(name, True) for name in (*self.abs_reductions, *self.abs_norms)]

    def to_json_dict(self) -> dict[str, Any]:
        """Return the fields as the collections file has them."""
        names = [
            *self.reductions,
            *(f"{name}{_NORM_SUFFIX}" for name in self.norms),
            *(f"{_ABSOLUTE_PREFIX}{name}" for name in self.abs_reductions),
            *(f"{_ABSOLUTE_PREFIX}{name}{_NORM_SUFFIX}" for name in self.abs_norms),
        ]
        return {
            "save_raw_tensor": self.save_raw_tensor,
            "reductions": ",".join(names),
            "save_shape": self.save_shape,
        }

    def to_json(self) -> str:
        """Return `to_json_dict()` as a string."""
        return json.dumps(self.to_json_dict())

    @classmethod
    def from_dict(cls, params: Mapping[str, Any] | None) -> ReductionConfig | None:
        """Build from `{"reductions": "mean,abs_l2_norm", "save_raw_tensor": ...}`; None gives None.

        Raises:
            HookConfigurationError: An unknown key or reduction.
        """
        if params is None:
            return None
        if not isinstance(params, Mapping):
            raise HookConfigurationError(f"params={params!r} must be a dict")
        for key in params:
            if key not in _FIELDS:
                raise HookConfigurationError(f"unknown key {key!r}: {nearest(str(key), _FIELDS)}")
        lists: dict[tuple[bool, bool], list[str]] = {}
        for entry in str(params.get("reductions") or "").replace(" ", "").split(","):
            if entry:
                name = entry.removeprefix(_ABSOLUTE_PREFIX).removesuffix(_NORM_SUFFIX)
                kind = (entry.startswith(_ABSOLUTE_PREFIX), name in _NORMS)
                lists.setdefault(kind, []).append(name)
        return cls(
            reductions=lists.get((False, False)),
            abs_reductions=lists.get((True, False)),
            norms=lists.get((False, True)),
            abs_norms=lists.get((True, True)),
            save_raw_tensor=params.get("save_raw_tensor", False),
            save_shape=params.get("save_shape", False),
        )

    @classmethod
    def from_json(cls, json_str: str) -> ReductionConfig | None:
        """Build from the string that `to_json` gives."""
        return cls.from_dict(json.loads(json_str))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ReductionConfig):
            return NotImplemented
        return self.to_json_dict() == other.to_json_dict()

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"ReductionConfig({self.to_json_dict()})"


def reduce_array(array: NDArray[Any], reduction: Reduction) -> NDArray[Any]:
    """Reduce an array to one value, by numpy's definitions (std and variance divide by n).

    The l2 norm is the one of the flattened array, whatever the number of dimensions.

    Args:
        array: Values, [...].
        reduction: Which one.

    Returns:
        The value, [] (0-d).
    """
    name, absolute = reduction
    values = np.abs(array) if absolute else array
    if name == "l1":
        return np.asarray(np.abs(values).sum())
    if name == "l2":
        return np.asarray(np.sqrt(np.square(np.abs(values)).sum()))
    function = {"variance": "var"}.get(name, name)
    return np.asarray(getattr(values, function)())


def _names(argument: str, names: Sequence[str] | None, valid: Sequence[str]) -> list[str]:
    if isinstance(names, str):
        raise HookConfigurationError(f"{argument}={names!r} must be a list, e.g. [{names!r}]")
    for name in names or ():
        if name not in valid:
            raise HookConfigurationError(
                f"{argument} has the unknown {name!r}: {nearest(str(name), valid)}"
            )
    return list(names or ())


def _flag(argument: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise HookConfigurationError(f"{argument}={value!r} must be True or False")
    return value
