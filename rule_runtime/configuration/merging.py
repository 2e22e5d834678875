"""What several rules ask the hook to save, as one list of collections."""

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
"""Parameters of one collection, as several rules give them."""


def merged(collections: Iterable[CollectionConfig]) -> tuple[CollectionConfig, ...]:
    """Return each collection once, with what satisfies everybody who asks for it.

    The order of what is given does not matter. The smallest `save_interval` wins, in each mode by
    itself, the smallest `start_step` and the largest `end_step`; regular expressions, reductions
    and `save_steps` are joined by commas, at which the hook parts them. It saves the listed steps
    and those of the interval, so both are kept; steps that an interval has anyway need no list. A
    flag is True if anybody needs it, so a value is stored if anybody asks for it by
    `save_raw_tensor`. The largest `raw_max_elements` counts, where all who ask for values have one.

    Args:
        collections: What is asked for; a name may come up more than once.

    Raises:
        ValueError: Two give a parameter that is not known here different values, or what should
            be a whole number is none.
    """
    by_name: dict[str, list[Mapping[str, str]]] = {}
    for config in collections:
        by_name.setdefault(config.name, []).append(config.parameters)
    return tuple(
        CollectionConfig(name, _joined(name, given)) for name, given in sorted(by_name.items())
    )


def steps_of(parameters: Mapping[str, str]) -> dict[str, str]:
    """Return those parameters that say at which steps is saved."""
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
    """Return the limit that is enough for everybody who asks for values; nothing: there is none."""
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
    """Return when the collection is saved, in each mode that is named."""
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
        # An empty value of a mode counts instead of one for all modes.
        result |= {mode + key: text for key, text in found.items() if text != result.get(key, "")}
    return result


def _numbers(name: str, given: Given, mode: str, key: str) -> list[list[int]]:
    """Return the numbers of a parameter that each asks for in a mode; none: it says nothing.

    Raises:
        ValueError: They are no such numbers; with the name of the parameter.
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
