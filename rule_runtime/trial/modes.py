"""Converts names of modes to `ModeKeys`."""

from __future__ import annotations

from typing import TypeAlias

from hook_layer.format.modes import ModeKeys

__all__ = ["Mode", "as_mode"]

Mode: TypeAlias = "ModeKeys | str"
"""A mode, or its name in any case."""


def as_mode(mode: Mode) -> ModeKeys:
    """Return a mode, given as it is or by name.

    Args:
        mode: The mode, or its name in any case: `TRAIN`, `eval`.

    Raises:
        TypeError: If it is neither.
    """
    if isinstance(mode, ModeKeys):
        return mode
    found = ModeKeys.__members__.get(mode.upper()) if isinstance(mode, str) else None
    if found is None:
        raise TypeError(
            f"{mode!r} is not a mode; give modes.{', '.join(ModeKeys.__members__)} or its name"
        )
    return found
