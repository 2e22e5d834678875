"""Former names of `rule_runtime.facts.framework` and `rule_runtime.facts.missing`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rule_runtime.facts import missing
from rule_runtime.facts.framework import Framework, framework_of

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = [
    "Framework",
    "framework_of",
    "input_values_advice",
    "loss_inputs_advice",
    "why_no_validation",
]

loss_inputs_advice = missing.how_to_save_loss_inputs
input_values_advice = missing.how_to_save_input_values


def why_no_validation(step: StepView) -> str:
    """Return the text of `missing_validation`.

    Args:
        step: The step.
    """
    return str(missing.missing_validation(step))
