"""Steps that packs save at the beginning of training, so that rules also judge short runs.

Only training begins densely. The first steps of validation are one pass over one state of the
model, of which a step at each interval says as much.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["DENSE_STEPS", "beginning_densely", "without_dense_start"]

_EACH: Final = 10
DENSE_STEPS: Final = (*range(_EACH + 1), *range(_EACH + 2, 51, 2))
"""Every step up to 10 and every second one up to 50: 31 steps, of which 6 are multiples of 10."""
_KEYS: Final = ("train.save_steps", "global.save_steps")


def beginning_densely(parameters: Mapping[str, str], every: int = 1) -> dict[str, str]:
    """Return the parameters of a collection with a dense start.

    Steps that the parameters list, and their `start_step` and `end_step`, count before it. Without
    a `save_interval` there is nothing to be denser than.

    Args:
        parameters: The parameters.
        every: After step 10 only multiples of this number are saved.
    """
    first, end = int(parameters.get("start_step", 0)), parameters.get("end_step")
    steps = [
        step
        for step in DENSE_STEPS
        if (step <= _EACH or step % every == 0)
        and step >= first
        and (end is None or step < int(end))
    ]
    if not steps or "save_interval" not in parameters:
        return dict(parameters)
    return {**dict.fromkeys(_KEYS, ",".join(map(str, steps))), **parameters}


def without_dense_start(parameters: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters of a collection without a dense start.

    Args:
        parameters: The parameters.
    """
    dense = frozenset(map(str, DENSE_STEPS))
    return {
        key: value
        for key, value in parameters.items()
        if key not in _KEYS or not dense.issuperset(value.split(","))
    }
