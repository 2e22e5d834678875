"""The parameters `start_step` and `end_step` of every rule, which bound the evaluated steps."""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rule_runtime.engine.constraints import AtLeast
from rule_runtime.engine.parameters import Parameter, ParameterError, coerce

if TYPE_CHECKING:
    from rule_runtime.engine.rule import Rule

__all__ = ["BOUNDS", "StepBounds", "bounded", "split_bounds"]

_START: Final = "start_step"
_END: Final = "end_step"
BOUNDS: Final = {
    name: Parameter(name, int | None, None, (AtLeast(0),), "") for name in (_START, _END)
}
"""Parameters that bound the steps, by name."""


@dataclass(frozen=True)
class StepBounds:
    """Global steps that a rule evaluates, from `first` to before `end`; all by default."""

    first: int = 0
    end: float = math.inf

    def __str__(self) -> str:
        if math.isinf(self.end):
            return f"steps from {self.first} on"
        return f"steps from {self.first} to before {self.end:g}"


def bounded(rule: Rule, steps: StepBounds) -> Rule:
    """Return a rule that evaluates only some steps."""
    rule = copy.copy(rule)
    object.__setattr__(rule, "step_bounds", steps)
    return rule


def split_bounds(
    owner: str, parameters: Mapping[str, object], accepted: Collection[str]
) -> tuple[dict[str, Any], StepBounds]:
    """Return the parameters without `start_step` and `end_step`, and the bounds from these.

    Names that the rule's class declares, `accepted`, are no bounds. `owner` is the rule's name.

    Raises:
        ParameterError: If a bound is not a step number, or the range is empty.
    """
    rest = dict(parameters)
    given = {
        name: coerce(parameter, rest.pop(name), owner=owner)
        for name, parameter in BOUNDS.items()
        if name in rest and name not in accepted
    }
    first, end = given.get(_START) or 0, given.get(_END)
    if end is not None and first >= end:
        raise ParameterError(
            f"{owner}: parameter {_END} is {end}, but must be greater than {_START}, which is "
            f"{first}: no step lies between them"
        )
    return rest, StepBounds(first, math.inf if end is None else end)
