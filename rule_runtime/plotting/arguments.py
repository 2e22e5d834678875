"""Checks the arguments of plots: tensors, steps, a statistic, counts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from rule_runtime.trial.tidy_table import TABLE_COLUMNS

if TYPE_CHECKING:
    from rule_runtime.trial.tensor import Tensor

__all__ = ["OneTensor", "check_count", "check_statistic", "step_list", "tensor_list", "tensor_name"]

OneTensor: TypeAlias = "str | Tensor"
"""A tensor, or its name."""


def tensor_name(tensor: OneTensor) -> str:
    """Return the name of a tensor, given by name or as an object.

    Raises:
        TypeError: If it is neither.
    """
    name = tensor if isinstance(tensor, str) else getattr(tensor, "name", None)
    if not isinstance(name, str):
        raise TypeError(f"{tensor!r} is not a tensor; give its name, or trial.tensor(name)")
    return name


def tensor_list(tensors: OneTensor | Iterable[OneTensor] | None) -> list[str]:
    """Return the names of one tensor, several tensors, or none.

    Raises:
        TypeError: If one is neither a name nor a tensor.
    """
    if tensors is None:
        return []
    if not isinstance(tensors, str) and isinstance(tensors, Iterable):
        return [tensor_name(tensor) for tensor in tensors]
    return [tensor_name(tensors)]


def step_list(steps: int | Iterable[int]) -> list[int]:
    """Return one step, or several, sorted.

    Raises:
        ValueError: If there are none.
    """
    found = [int(steps)] if isinstance(steps, int | np.integer) else sorted(set(steps))
    if not found:
        raise ValueError("steps is empty; give a step, several, or None for some of all")
    return found


def check_count(name: str, count: int) -> None:
    """Refuse a count below 1.

    Raises:
        ValueError: If it is not an integer from 1.
    """
    if not isinstance(count, int | np.integer) or count < 1:
        raise ValueError(f"{name} must be an integer >= 1, not {count!r}")


def check_statistic(statistic: str | None) -> None:
    """Refuse an unknown statistic.

    Raises:
        ValueError: If it is not a statistic, for instance a list of names.
    """
    if statistic is not None and statistic not in TABLE_COLUMNS:
        only_one = "" if isinstance(statistic, str) else "; a picture shows one of them"
        raise ValueError(
            f"there is no statistic {statistic!r}; valid are {', '.join(TABLE_COLUMNS)}{only_one}"
        )
