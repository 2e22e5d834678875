"""PoorWeightInitialization: first steps that show unsuitable initial weights."""

from __future__ import annotations

from typing import Annotated, Final

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.findings import finding
from rule_runtime.engine.needs import Needs
from rule_runtime.engine.outcome import Missing, NotApplicable, NotEvaluated, Outcome, Passed
from rule_runtime.engine.parameters import ParameterError
from rule_runtime.engine.rule import AtLeast, GreaterThan, Memory, Regex, Rule, Unit
from rule_runtime.engine.selection import saved_every
from rule_runtime.facts.initialisation import (
    FIRST_WEIGHTS,
    Sign,
    equal_units,
    large_weights,
    loss_without_decrease,
    narrow_gradients,
    unlike_variances,
)
from rule_runtime.trial.step_view import StepView

__all__ = ["PoorWeightInitialization"]

_CONDITIONS: Final = ("variances", "gradients", "losses", "scale", "symmetry")
_AT_START: Final = frozenset({"scale", "symmetry"})


class PoorWeightInitialization(Rule):
    """Detects badly initialised weights in the first steps.

    How it decides:
        The rule evaluates the first `steps` saved training steps. Each condition suffices:
        * `variances`: ReLU inputs have variances of a ratio above `threshold`.
        * `gradients`: percentiles of a gradient differ by less than `distribution_range`.
        * `losses`: a loss does not fall for `patience` steps.
        * `scale`: half of the weights have a gain above `max_gain`.
        * `symmetry`: half of the weights are constant.

    Parameters:
        activation_inputs_regex: Regular expressions of further inputs of ReLU layers.
        threshold: Largest ratio of two variances.
        distribution_range: Smallest distance of the 5th and 95th percentile.
        patience: Number of steps without a smaller loss that is reported.
        steps: Number of first saved steps to evaluate.
        conditions: Names of the conditions; by default those of SageMaker Debugger.
        max_gain: Largest gain of a weight.

    What to try:
        Use an initialisation that fits the activation (Kaiming for ReLU, Xavier for tanh and
        sigmoid), normalise inputs and activations, and check the learning rate.
    """

    activation_inputs_regex: Annotated[tuple[str, ...], Regex()] = (".*relu_input",)
    threshold: Annotated[float, GreaterThan(0), Unit("largest / smallest variance")] = 10.0
    distribution_range: Annotated[float, AtLeast(0), Unit("gradient")] = 0.001
    patience: Annotated[int, AtLeast(1), Unit("steps")] = 5
    steps: Annotated[int, AtLeast(1), Unit("saved steps")] = 10
    conditions: tuple[str, ...] = ("variances", "gradients", "losses")
    max_gain: Annotated[float, GreaterThan(0), Unit("gain")] = 3.0

    only_training = "steps of mode {} are not evaluated"

    def __post_init__(self) -> None:
        super().__post_init__()
        unknown = [name for name in self.conditions if name not in _CONDITIONS]
        if unknown or not self.conditions:
            raise ParameterError(
                f"PoorWeightInitialization: conditions is {', '.join(self.conditions) or 'empty'}, "
                f"but must be some of {', '.join(_CONDITIONS)}"
            )

    def requires(self) -> tuple[CollectionConfig, ...]:
        """Return the collections for the conditions; first gradients with values only if needed."""
        of_weights = FIRST_WEIGHTS if set(self.conditions) & _AT_START else ()
        if not set(self.conditions) - _AT_START:
            return of_weights
        names = "|".join(self.activation_inputs_regex)
        return (
            *of_weights,
            *saved_every(1, "relu_input", include_regex=names, end_step=self.steps),
            # Other rules may need these for the whole run, which would be too much at every step.
            *saved_every(1, "first_steps", end_step=self.steps, save_raw_tensor=True),
            *saved_every(500, "gradients", "losses"),
        )

    def needs(self) -> Needs:
        """Return the steps without a smaller loss that are reported."""
        least = min(1 + self.patience, self.steps) if "losses" in self.conditions else 1
        return Needs(saved_steps=least)

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Evaluate all conditions if the step is one of the first.

        Memory: `num_judged`: steps; `losses`: see `loss_without_decrease`.
        """
        if memory.get("num_judged", 0) >= self.steps:
            return NotApplicable(f"only the first {self.steps} saved training steps are evaluated")
        judged = [c for c in self.conditions if c not in _AT_START or step.mode_step == 0]
        if not judged:
            return NotApplicable("weights are evaluated only at step 0")
        order = sorted(judged, key=_CONDITIONS.index)
        answers = [self._judge(condition, step, memory) for condition in order]
        signs = [answer for answer in answers if not isinstance(answer, Missing)]
        if not signs:
            return NotEvaluated("; ".join(dict.fromkeys(map(str, answers))))
        memory["num_judged"] = memory.get("num_judged", 0) + 1
        found = next((sign for sign in signs if sign is not None), None)
        return Passed() if found is None else finding(self, step, *found)

    def _judge(self, condition: str, step: StepView, memory: Memory) -> Sign | Missing | None:
        """Return the sign of a condition, None without one, or what is missing."""
        try:
            if condition == "variances":
                return unlike_variances(step, self.activation_inputs_regex, self.threshold)
            if condition == "gradients":
                return narrow_gradients(step, self.distribution_range)
            if condition == "losses":
                return loss_without_decrease(step, memory, self.patience)
            return large_weights(step, self.max_gain) if condition == "scale" else equal_units(step)
        except Missing as missing:
            return missing
