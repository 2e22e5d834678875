"""The parameters `start_step` and `end_step`, which every rule takes: the steps that it judges."""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rule_runtime.engine.parameters import ParameterError

if TYPE_CHECKING:
    from rule_runtime.engine.rule import Rule

__all__ = ["StepBounds", "bounded", "split_bounds"]

_START: Final = "start_step"
_END: Final = "end_step"


@dataclass(frozen=True)
class StepBounds:
    """Global steps that a rule judges; all by default.

    Attributes:
        first: The first step.
        end: The step after the last one.
    """

    first: int = 0
    end: float = math.inf

    def __contains__(self, step: int) -> bool:
        return self.first <= step < self.end

    def __str__(self) -> str:
        if math.isinf(self.end):
            return f"steps from {self.first} on"
        return f"steps from {self.first} to before {self.end:g}"


def bounded(rule: Rule, steps: StepBounds) -> Rule:
    """Return a rule that judges only some steps.

    Args:
        rule: The rule.
        steps: The steps.
    """
    rule = copy.copy(rule)
    object.__setattr__(rule, "step_bounds", steps)
    return rule


def split_bounds(
    owner: str, parameters: Mapping[str, object], accepted: Collection[str]
) -> tuple[dict[str, Any], StepBounds]:
    """Return the parameters without `start_step` and `end_step`, and the bounds that these set.

    Args:
        owner: Name of the rule, for the message.
        parameters: Its parameters.
        accepted: Names of the parameters that its class declares; they are never bounds.

    Raises:
        ParameterError: If a bound is no step number, or no step lies between them.
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
                f"{owner}: parameter {key} is {value!r}, but must be the number of a step",
                parameter=key,
                allowed="the number of a step",
            )
        numbers[key] = int(text)
    every = StepBounds()
    bounds = StepBounds(numbers.get(_START, every.first), numbers.get(_END, every.end))
    if bounds.first >= bounds.end:
        raise ParameterError(
            f"{owner}: parameter {_END} is {bounds.end}, but must be greater than {_START}, which "
            f"is {bounds.first}: no step lies between them"
        )
    return rest, bounds
