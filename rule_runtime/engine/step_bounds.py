"""The steps that a rule is to judge, which a service may give to any rule."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import NotApplicable, Outcome
from rule_runtime.engine.parameters import Parameter, ParameterError
from rule_runtime.engine.rule import Memory, Rule

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["BoundedRule", "StepBounds", "bounded", "split_bounds"]

_START: Final = "start_step"
_END: Final = "end_step"


@dataclass(frozen=True)
class StepBounds:
    """Global steps that are judged; all of them unless told otherwise.

    Attributes:
        first: The first of them.
        end: The step before which they end.
    """

    first: int = 0
    end: float = math.inf

    def __contains__(self, step: int) -> bool:
        return self.first <= step < self.end

    def __str__(self) -> str:
        if math.isinf(self.end):
            return f"steps from {self.first} on"
        return f"steps from {self.first} to before {self.end:g}"


class BoundedRule(Rule):
    """Judges some steps by another rule, which is not shown the others.

    Attributes:
        rule: The other rule.
        steps: The steps that it judges.
    """

    rule: Rule
    steps: StepBounds

    def __post_init__(self) -> None:
        """Leave the two as they are: they are no parameters."""

    @classmethod
    def parameters(cls) -> tuple[Parameter, ...]:
        """Return nothing: the parameters are those of the other rule."""
        return ()

    @property
    def has_defaults(self) -> bool:
        """Whether every parameter of the other rule has its default."""
        return self.rule.has_defaults

    def judging_class(self) -> type[Rule]:
        """Return the class of the other rule."""
        return self.rule.judging_class()

    def requires(self) -> tuple[CollectionConfig, ...]:
        """Return what the other rule requires."""
        return self.rule.requires()

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Let the other rule judge a step that lies within the bounds.

        Args:
            step: What was saved at the step.
            memory: That of the other rule.
        """
        if step.step in self.steps:
            return self.rule.check(step, memory)
        return NotApplicable(f"the rule is to judge {self.steps} only")

    def check_silence(self, seconds: float, step: int) -> Outcome | None:
        """Let the other rule judge a silence, whatever the bounds.

        Args:
            seconds: Seconds since the last output of a run that has not ended.
            step: Global step of that output, -1 if there was none yet.
        """
        return self.rule.check_silence(seconds, step)


def bounded(rule: Rule, steps: StepBounds) -> Rule:
    """Return a rule that judges these steps only; the rule itself if they are all steps.

    Args:
        rule: The rule.
        steps: The steps.
    """
    return rule if steps == StepBounds() else BoundedRule(rule=rule, steps=steps)


def split_bounds(
    owner: str, parameters: Mapping[str, object], accepted: Collection[str]
) -> tuple[dict[str, Any], StepBounds]:
    """Return the parameters without `start_step` and `end_step`, and the bounds that these are.

    Args:
        owner: Name of the rule, for the message.
        parameters: Its parameters.
        accepted: Names of those that it takes itself.

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
                f"{owner}: parameter {key} is {value!r}, but must be a step number"
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
