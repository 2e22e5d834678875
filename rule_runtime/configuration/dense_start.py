"""Extra save steps of packs at the beginning of training, for short runs.

It applies only to training steps. The first validation steps belong to one pass over the same
model, so a step per interval is enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["DENSE_STEPS", "add_dense_start"]

_EACH: Final = 10
DENSE_STEPS: Final = (*range(_EACH + 1), *range(_EACH + 2, 51, 2))
"""Every step up to 10 and every second one up to 50: 31 steps, of which 6 are multiples of 10."""
_MODES: Final = ("train", "global")
_BOUNDS: Final = ("start_step", "end_step")


def add_dense_start(parameters: Mapping[str, str], every: int = 1) -> dict[str, str]:
    """Return the parameters of a collection with a dense start.

    It respects `start_step` and `end_step`, and extends `save_steps`; the `save_steps` of a mode
    replace it. It does nothing without `save_interval`.

    Args:
        parameters: The parameters.
        every: After step 10, only multiples of this number are saved.
    """
    found = dict(parameters)
    steps = [step for step in DENSE_STEPS if step <= _EACH or step % every == 0]
    for mode in _MODES if "save_interval" in parameters else ():
        of_mode = {key: parameters.get(f"{mode}.{key}", parameters.get(key)) for key in _BOUNDS}
        first, end = (None if text is None else int(text) for text in of_mode.values())
        dense = {step for step in steps if (first or 0) <= step and (end is None or step < end)}
        listed = {int(step) for step in parameters.get("save_steps", "").split(",") if step}
        if dense:
            found.setdefault(f"{mode}.save_steps", ",".join(map(str, sorted(dense | listed))))
    return found
