"""What rules remember of passes of validation, in numbers that are finite and few."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from rule_runtime.facts.evaluation_phases import is_share_of_errors
from rule_runtime.numerics.series_memory import MAX_SERIES, Series

if TYPE_CHECKING:
    from rule_runtime.engine.rule import Memory

__all__ = ["add_to_pass", "keep_beside", "means_of_pass", "trained_beside", "within_limits"]

_LARGEST: Final = 1e308
_MOST_NAMES: Final = 2 * MAX_SERIES
_TRAIN_PREFIX: Final = "train-"
_Passed = tuple[str, str, str]


def add_to_pass(memory: Memory, losses: Mapping[Series, float]) -> None:
    """Add the losses of a step of validation to those of its pass.

    Args:
        memory: Its `passes`, name, worker, sum and number of at most 32 losses, and `steps`.
        losses: The losses, finite.
    """
    passes: list[list[Any]] = memory.setdefault("passes", [])
    memory["steps"] = memory.get("steps", 0) + 1
    places = {(name, worker): at for at, (name, worker, *_) in enumerate(passes)}
    for names in sorted(losses):
        if names in places:
            known = passes[places[names]]
            known[2:] = within_limits(known[2] + losses[names]), known[3] + 1
        elif len(passes) < MAX_SERIES:
            passes.append([*names, losses[names], 1])


def means_of_pass(memory: Memory) -> dict[_Passed, float]:
    """Return the mean losses of the pass that ended, and forget it.

    Args:
        memory: As `add_to_pass` has left it.
    """
    passes = memory.pop("passes", [])
    return {(name, worker, name): total / count for name, worker, total, count in passes}


def keep_beside(memory: Memory, found: Mapping[str, float]) -> None:
    """Keep what a step tells beside its losses, of the first 64 names of losses that came.

    Args:
        memory: Its `beside`, numbers by what they are and, behind a slash, the name of the loss.
        found: What the step tells; NaN is left out.
    """
    known: dict[str, float] = memory.setdefault("beside", {})
    names = {_name(key) for key in known}
    for key, number in found.items():
        if not math.isnan(number) and (_name(key) in names or len(names) < _MOST_NAMES):
            names.add(_name(key))
            known[key] = within_limits(number)


def within_limits(number: float) -> float:
    """Return a number, or one that is not infinite in its place: JSON has none."""
    return max(-_LARGEST, min(number, _LARGEST))


def _name(key: str) -> str:
    return key.partition("/")[2]


def trained_beside(losses: Mapping[Series, float]) -> dict[Series, Series]:
    """Return the losses of other data sets that XGBoost measures, and those of training.

    Args:
        losses: Losses of a step.
    """
    of_training = {
        (name, worker): (f"{_TRAIN_PREFIX}{name.partition('-')[2]}", worker)
        for name, worker in losses
        if "-" in name and not name.startswith(_TRAIN_PREFIX) and not is_share_of_errors(name)
    }
    return {names: beside for names, beside in of_training.items() if beside in losses}
