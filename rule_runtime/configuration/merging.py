"""Merges the collections of several rules into one list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from rule_runtime.configuration.collection_config import CollectionConfig

__all__ = ["merged", "steps_of"]

_MODES: Final = ("", "train.", "eval.", "predict.", "global.")
_FLAGS: Final = ("save_raw_tensor", "save_shape", "save_histogram")
_LISTS: Final = ("include_regex", "reductions")
_OF_STEPS: Final = ("save_interval", "start_step", "end_step", "save_steps")
_LIMIT: Final = "raw_max_elements"
_TRUE: Final = frozenset({"true", "1", "yes", "on"})

Given = Sequence[Mapping[str, str]]
"""Parameters of one collection from several rules."""


def merged(collections: Iterable[CollectionConfig]) -> tuple[CollectionConfig, ...]:
    """Return each collection once, with parameters that satisfy all rules.

    The order of the input does not matter. Per mode, the smallest `save_interval`, the smallest
    `start_step` and the largest `end_step` win. Regular expressions, reductions and `save_steps`
    are joined with commas. The hook saves both listed steps and those of the interval; listed steps
    that the interval covers are dropped. A flag is True if any rule needs it, so values are stored
    if any rule sets `save_raw_tensor`. The largest `raw_max_elements` wins, if all rules with
    values set one.

    Args:
        collections: The collections; names may repeat.

    Raises:
        ValueError: Values of an unknown parameter conflict, or an integer parameter is invalid.
    """
    by_name: dict[str, list[Mapping[str, str]]] = {}
    for config in collections:
        by_name.setdefault(config.name, []).append(config.parameters)
    return tuple(
        CollectionConfig(name, _joined(name, given)) for name, given in sorted(by_name.items())
    )


def steps_of(parameters: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters that set save steps."""
    return {key: value for key, value in parameters.items() if _is_of_steps(key)}


def _joined(name: str, given: Given) -> dict[str, str]:
    result: dict[str, str] = {}
    keys = sorted({key for parameters in given for key in parameters})
    for key in keys:
        values = [parameters[key] for parameters in given if key in parameters]
        if key in _LISTS:
            result[key] = ",".join(sorted(set(values)))
        elif key in _FLAGS:
            result[key] = str(any(map(_is_true, values)))
        elif key == _LIMIT:
            result |= _limit(name, given)
        elif not _is_of_steps(key):
            if len(set(values)) > 1:
                asked = " and ".join(sorted(set(values)))
                raise ValueError(
                    f"collection {name}: rules request different values of {key}: {asked}; "
                    "give them one value"
                )
            result[key] = values[0]
    result |= _steps(name, given)
    return dict(sorted(result.items()))


def _limit(name: str, given: Given) -> dict[str, str]:
    """Return the limit that satisfies all rules with values; empty for no limit."""
    limits = [
        parameters.get(_LIMIT)
        for parameters in given
        if _LIMIT in parameters or _is_true(parameters.get("save_raw_tensor", ""))
    ]
    numbers = [limit for limit in limits if limit is not None]
    wrong = [number for number in numbers if not number.strip().isdecimal()]
    if wrong:
        raise ValueError(f"collection {name}: {_LIMIT}={wrong[0]!r} must be a number of elements")
    return {_LIMIT: max(numbers, key=int)} if numbers and len(numbers) == len(limits) else {}


def _is_true(value: str) -> bool:
    return value.strip().casefold() in _TRUE


def _is_of_steps(key: str) -> bool:
    mode, dot, name = key.rpartition(".")
    return mode + dot in _MODES and name in _OF_STEPS


def _steps(name: str, given: Given) -> dict[str, str]:
    """Return the save steps of each named mode."""
    result: dict[str, str] = {}
    for mode in _MODES:
        if mode and not any(key.startswith(mode) for parameters in given for key in parameters):
            continue
        lists = _numbers(name, given, mode, "save_steps")
        listed = {step for steps in lists for step in steps}
        intervals = [
            every for (every,) in filter(None, _numbers(name, given, mode, "save_interval"))
        ]
        starts = _numbers(name, given, mode, "start_step")
        ends = _numbers(name, given, mode, "end_step")
        if intervals and not (all(starts) or all(ends)):
            listed = {step for step in listed if step % min(intervals)}
        found = {
            "save_steps": ",".join(map(str, sorted(listed))),
            "save_interval": str(min(intervals, default="")),
            "start_step": str(min(first for (first,) in starts)) if all(starts) else "",
            "end_step": str(max(end for (end,) in ends)) if all(ends) else "",
        }
        # An empty value of a mode replaces the value for all modes.
        result |= {mode + key: text for key, text in found.items() if text != result.get(key, "")}
    return result


def _numbers(name: str, given: Given, mode: str, key: str) -> list[list[int]]:
    """Return each rule's numbers of a parameter in a mode; empty if not set.

    Raises:
        ValueError: They are not integers; names the parameter.
    """
    found: list[list[int]] = []
    is_list = key == "save_steps"
    least = int(key == "save_interval")
    for parameters in given:
        said = mode + key if mode + key in parameters else key
        text = parameters.get(said)
        parts = [] if text is None else text.split(",") if is_list else [text]
        try:
            numbers = [int(part) for part in parts if part.strip() or not is_list]
        except ValueError:
            numbers = [-1]
        if any(number < least for number in numbers):
            kind = "list of whole numbers" if is_list else "whole number"
            raise ValueError(
                f"collection {name}: {said}={text!r} must be a {kind} of at least {least}"
            )
        found.append(numbers)
    return found
