"""The steps that a rule is to judge, which a service may give to any rule."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from rule_runtime.evaluation.parameters import ParameterError

if TYPE_CHECKING:
    from rule_runtime.evaluation.rule import Rule

__all__ = ["bound", "bounds_of", "split_bounds"]

_START: Final = "start_step"
_END: Final = "end_step"
_ATTRIBUTE: Final = "_judged_steps"
_UNBOUNDED: Final = (0, math.inf)

Bounds = tuple[int, float]
"""Global steps to judge, from the first to before the second."""


def split_bounds(
    owner: str, parameters: Mapping[str, object], accepted: Collection[str]
) -> tuple[dict[str, Any], Bounds]:
    """Return the parameters without `start_step` and `end_step`, and the bounds that these are.

    Args:
        owner: Name of the rule, for the message.
        parameters: Its parameters.
        accepted: Names of those that it takes itself.

    Raises:
        ParameterError: If a bound is no step number.
    """
    rest = dict(parameters)
    numbers = {}
    for key in (_START, _END):
        if key not in rest or key in accepted:
            continue
        value = rest.pop(key)
        text = str(value).strip()
        if text.lower() in ("", "none"):
            continue
        if not text.isdecimal():
            raise ParameterError(
                f"{owner}: parameter {key} is {value!r}, but must be a step number"
            )
        numbers[key] = int(text)
    return rest, (numbers.get(_START, _UNBOUNDED[0]), numbers.get(_END, _UNBOUNDED[1]))


def bound(rule: Rule, steps: Bounds) -> Rule:
    """Return the rule, which is shown these steps only.

    Args:
        rule: The rule.
        steps: The steps.
    """
    if steps != _UNBOUNDED:
        object.__setattr__(rule, _ATTRIBUTE, steps)
    return rule


def bounds_of(rule: Rule) -> Bounds:
    """Return the steps that a rule is to judge.

    Args:
        rule: The rule.
    """
    steps: Bounds = getattr(rule, _ATTRIBUTE, _UNBOUNDED)
    return steps
