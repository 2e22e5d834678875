"""Attaches a hook of a configuration file to the model that trains first.

In AWS's containers a script makes the hook and need not register its model. Here the search of
`hook_layer.pytorch.unchanged` finds the model. The search ends as soon as the script registers a
model; one that the search has found by then is let go.
"""

from __future__ import annotations

from typing import Final
from weakref import ref

from hook_layer.autopatch.hook_of_script import HookOfScript
from hook_layer.pytorch import Hook
from hook_layer.pytorch.unchanged import Trainings

__all__ = ["attach_to_first_model", "leave_to_script"]

_trainings: Final[list[Trainings]] = []
"""Those of this process, once: they patch functions of torch."""


def attach_to_first_model(hook: Hook) -> None:
    """Look for the model of a hook that has none.

    Args:
        hook: The hook; known weakly.
    """
    source = HookOfScript(hook=ref(hook))
    if _trainings:
        _trainings[0].look_for(source)
        return
    trainings = Trainings(source)
    trainings.begin()
    _trainings.append(trainings)


def leave_to_script(hook: Hook) -> bool:
    """Look for no model of a hook any more; return whether one was found.

    Args:
        hook: The hook.
    """
    return _trainings[0].leave(hook)
