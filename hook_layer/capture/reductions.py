"""Selects the stored reductions of a tensor, and computes them with numpy."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hook_layer.configuration.json_values import (
    as_flag,
    as_integer,
    as_object,
    as_texts,
    known_keys,
    load_json,
    refuse,
)
from hook_layer.errors import nearest

__all__ = ["Reduction", "ReductionConfig", "reduce_array"]

Reduction = tuple[str, bool]
"""Name of a reduction (`mean`, `l2`, ...), and whether it applies to absolute values."""

_MEDIAN: Final = "median"
_REDUCTIONS: Final = ("min", "max", "mean", _MEDIAN, "std", "variance", "sum", "prod")
_NORMS: Final = ("l1", "l2")
_NORM_SUFFIX: Final = "_norm"
_ABSOLUTE_PREFIX: Final = "abs_"
_NAMES: Final = tuple(
    f"{prefix}{name}"
    for prefix in ("", _ABSOLUTE_PREFIX)
    for name in (*_REDUCTIONS, *_NORMS, *(norm + _NORM_SUFFIX for norm in _NORMS))
)
_FLAGS: Final = ("save_raw_tensor", "save_shape")
_LIMIT: Final = "raw_max_elements"
_FIELDS: Final = ("reductions", *_FLAGS, _LIMIT)


class ReductionConfig:
    """Selects the stored reductions of a tensor, and whether its value is stored.

    Args:
        reductions: Of `min max mean median std variance sum prod`. The original documents the
            median but rejects it.
        abs_reductions: The same, of the absolute values.
        norms: Of `l1 l2`.
        abs_norms: The same, of the absolute values.
        save_raw_tensor: Whether the value itself is stored too. With no reductions and False, only
            the statistics that every index file carries are stored.
        save_shape: Whether the shape is stored (tensors with statistics always have one).
        raw_max_elements: Maximum stored elements: a larger value is cut to its first rows, but
            reductions and statistics cover the whole tensor. None for no limit, as in the original.

    Raises:
        HookConfigurationError: A name is unknown, a flag not boolean, or the limit not an integer.
    """

    def __init__(  # noqa: PLR0917 - the original's arguments
        self,
        reductions: Sequence[str] | None = None,
        abs_reductions: Sequence[str] | None = None,
        norms: Sequence[str] | None = None,
        abs_norms: Sequence[str] | None = None,
        save_raw_tensor: bool = False,
        save_shape: bool = False,
        *,
        raw_max_elements: int | None = None,
    ) -> None:
        self.reductions = _names("reductions", reductions, _REDUCTIONS)
        self.abs_reductions = _names("abs_reductions", abs_reductions, _REDUCTIONS)
        self.norms = _names("norms", norms, _NORMS)
        self.abs_norms = _names("abs_norms", abs_norms, _NORMS)
        self.save_raw_tensor = _flag("save_raw_tensor", save_raw_tensor)
        self.save_shape = _flag("save_shape", save_shape)
        limit = raw_max_elements
        self.raw_max_elements = None if limit is None else as_integer(_LIMIT, limit, minimum=0)

    def requested(self) -> list[Reduction]:
        """Return the reductions in the order of storage."""
        plain = [(name, False) for name in (*self.reductions, *self.norms)]
        return plain + [(name, True) for name in (*self.abs_reductions, *self.abs_norms)]

    def to_json_dict(self) -> dict[str, Any]:
        """Return the fields in the format of the collections file."""
        names = [
            *self.reductions,
            *(f"{name}{_NORM_SUFFIX}" for name in self.norms),
            *(f"{_ABSOLUTE_PREFIX}{name}" for name in self.abs_reductions),
            *(f"{_ABSOLUTE_PREFIX}{name}{_NORM_SUFFIX}" for name in self.abs_norms),
        ]
        members = {
            "save_raw_tensor": self.save_raw_tensor,
            "reductions": ",".join(names),
            "save_shape": self.save_shape,
        }
        limit = self.raw_max_elements
        return members if limit is None else {**members, _LIMIT: limit}

    def to_file_dict(self) -> dict[str, Any]:
        """Return `to_json_dict()` without fields that would make the original reject the file."""
        members = self.to_json_dict()
        members.pop(_LIMIT, None)
        names = str(members["reductions"]).split(",")
        known = [name for name in names if name.removeprefix(_ABSOLUTE_PREFIX) != _MEDIAN]
        return {**members, "reductions": ",".join(known)}

    def to_json(self) -> str:
        """Return `to_json_dict()` as a string."""
        return json.dumps(self.to_json_dict())

    @classmethod
    def from_dict(cls, params: Mapping[str, Any] | None) -> ReductionConfig | None:
        """Parse `{"reductions": "mean,abs_l2_norm", "save_raw_tensor": ...}`; None gives None.

        Norms may be `l2` or `l2_norm`. Flags may be strings, as from SageMaker.

        Raises:
            HookConfigurationError: A key or reduction is unknown.
        """
        if params is None:
            return None
        members = known_keys("params.", as_object("params", params), _FIELDS)
        given = members.get("reductions", [])
        lists: dict[tuple[bool, bool], list[str]] = {}
        for entry in as_texts("reductions", given):
            name = entry.strip().removeprefix(_ABSOLUTE_PREFIX)
            norm = name.removesuffix(_NORM_SUFFIX)
            if name not in _REDUCTIONS and norm not in _NORMS:
                refuse("reductions", given, f"has the unknown {entry!r}: {nearest(entry, _NAMES)}")
            is_norm = norm in _NORMS
            kind = (entry.strip() != name, is_norm)
            lists.setdefault(kind, []).append(norm if is_norm else name)
        flags = {key: as_flag(key, members[key]) for key in _FLAGS if key in members}
        return cls(
            reductions=lists.get((False, False)),
            abs_reductions=lists.get((True, False)),
            norms=lists.get((False, True)),
            abs_norms=lists.get((True, True)),
            raw_max_elements=members.get(_LIMIT),
            **flags,
        )

    @classmethod
    def from_json(cls, json_str: str) -> ReductionConfig | None:
        """Create from the result of `to_json`."""
        return cls.from_dict(load_json("json_str", json_str))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ReductionConfig):
            return NotImplemented
        return self.to_json_dict() == other.to_json_dict()

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"ReductionConfig({self.to_json_dict()})"


def reduce_array(array: NDArray[Any], reduction: Reduction) -> NDArray[Any]:
    """Reduce an array to one value, by numpy's definitions (std and variance divide by n).

    The l2 norm is that of the flattened array.

    Args:
        array: Values, [...].
        reduction: The reduction.

    Returns:
        The value, [] (0-d).
    """
    name, absolute = reduction
    values = np.abs(array) if absolute else array
    if name == "l1":
        return np.asarray(np.abs(values).sum())
    if name == "l2":
        return np.asarray(np.sqrt(np.square(np.abs(values)).sum()))
    if name == _MEDIAN:
        return np.asarray(np.median(values))
    function = {"variance": "var"}.get(name, name)
    return np.asarray(getattr(values, function)())


def _names(argument: str, names: Sequence[str] | None, valid: Sequence[str]) -> list[str]:
    if names is None:
        return []
    if isinstance(names, (str, bytes)) or not isinstance(names, Iterable):
        refuse(argument, names, f"must be a list, e.g. [{valid[0]!r}]")
    for name in names:
        if name not in valid:
            refuse(argument, names, f"has the unknown {name!r}: {nearest(str(name), valid)}")
    return list(names)


def _flag(argument: str, value: object) -> bool:
    if not isinstance(value, bool):
        refuse(argument, value, "must be True or False")
    return value
