"""What a rule needs before it can decide that a run has no issue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from rule_runtime.engine.outcome import NotEnough, counted

__all__ = ["FINISHED_VALIDATION", "Needs", "passes_of_patience", "saved_steps_of_patience"]

FINISHED_VALIDATION: Final = "finished validation pass"


@dataclass(frozen=True, kw_only=True)
class Needs:
    """The least data after which a rule without a finding has decided that there is no issue.

    The evaluator counts steps and passes: until there are enough, a step that passed is not
    evaluated yet. What only the rule can count, it counts itself and raises `too_few`.

    Attributes:
        steps: Training steps since the first saved step with the rule's data.
        saved_steps: Saved steps with the rule's data, after these training steps.
        validation_passes: Finished validation passes, for rules that pass or find an issue only at
            the end of a pass.
        elements: Number of elements that the rule counts itself; 0 if it counts none.
        noun: Noun for one of these elements.
    """

    steps: int = 0
    saved_steps: int = 1
    validation_passes: int = 0
    elements: int = 0
    noun: str = "element"

    def unmet(self, num_saved: int, num_steps: int) -> str:
        """Return what is needed and what there is; empty if steps and passes are enough.

        Args:
            num_saved: Saved steps, or validation passes, with the rule's data after `steps`.
            num_steps: Training steps since the first step with the rule's data.
        """
        if num_steps < self.steps:
            return str(NotEnough(self.steps, "step", num_steps))
        why = f"after {counted(self.steps, 'step')}" if self.steps else ""
        if num_saved < self.validation_passes:
            return str(NotEnough(self.validation_passes, FINISHED_VALIDATION, num_saved))
        if num_saved < self.saved_steps:
            return str(NotEnough(self.saved_steps, "saved step", num_saved, why))
        return ""

    def too_few(self, num_elements: int, why: str = "") -> NotEnough:
        """Return the exception to raise while there are fewer elements than needed."""
        return NotEnough(self.elements, self.noun, num_elements, why)

    def __str__(self) -> str:
        """Return the needs in words; empty if one saved step is enough."""
        parts = [
            (self.steps, "step"),
            (self.validation_passes, FINISHED_VALIDATION),
            (self.saved_steps if self.saved_steps > 1 else 0, "saved step"),
            (self.elements, self.noun),
        ]
        return " and ".join(counted(number, noun) for number, noun in parts if number)


class _Patient(Protocol):
    """A rule that waits for several findings in a row."""

    @property
    def patience(self) -> int: ...


def saved_steps_of_patience(rule: _Patient) -> Needs:
    """Return `patience` saved steps: the `needs` of a rule that reports faults which last."""
    return Needs(saved_steps=rule.patience)


def passes_of_patience(rule: _Patient) -> Needs:
    """Return `patience` validation passes: the `needs` of a rule that reports faults which last."""
    return Needs(validation_passes=rule.patience)
