"""LossNotDecreasing: a loss that does not fall by a given percentage over a number of steps."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Final, Literal

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import IssueFound, NotApplicable, NotEvaluated, Outcome, Passed
from rule_runtime.engine.parameters import ParameterError
from rule_runtime.engine.rule import AtLeast, GreaterThan, LessThan, Memory, Regex, Rule, Unit
from rule_runtime.facts.loss_comparisons import Comparison, due_comparisons
from rule_runtime.facts.selection import evidence, selected_collections

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["LossNotDecreasing"]

_REMEDY: Final = (
    "Change the learning rate: too high is the usual cause of a rise, too low of standing still. "
    "Check that the optimizer has all parameters and that labels match inputs. If the training has "
    "converged, stop it or raise num_steps."
)


class LossNotDecreasing(Rule):
    """Detects losses that do not fall by a given percentage over a given number of steps.

    How it decides:
        Each loss is compared with its value `num_steps` steps or more before. The fall, (previous -
        current) / |previous|, must be at least `diff_percent`. Steps of one evaluation pass are not
        compared with each other.

    Parameters:
        collection_names: Collections whose tensors are losses.
        tensor_regex: Regular expressions of further losses.
        use_losses_collection: True to take the collection `losses` as well.
        num_steps: Steps between two losses that are compared.
        diff_percent: The least fall, in percent of the previous loss.
        increase_threshold_percent: The rise in percent that is reported as a rise.
        mode: The mode to judge; EVAL once it has losses, otherwise TRAIN, if not given.

    What to try:
        Another learning rate, a warm-up or a schedule. Raise `num_steps` if the loss is noisy.
    """

    collection_names: tuple[str, ...] = ()
    tensor_regex: Annotated[tuple[str, ...], Regex()] = ()
    use_losses_collection: bool = True
    num_steps: Annotated[int, AtLeast(1), Unit("steps")] = 10
    diff_percent: Annotated[float, GreaterThan(0), LessThan(100), Unit("%")] = 0.1
    increase_threshold_percent: Annotated[float, GreaterThan(0), LessThan(100), Unit("%")] = 5.0
    mode: Literal["EVAL", "TRAIN", "PREDICT", "GLOBAL"] | None = None

    collections = (CollectionConfig("losses", {"save_interval": "500"}),)
    caution = (
        "with its defaults it compares the losses of two single batches ten steps apart, which "
        "differ by chance, so it may stop healthy runs; raise num_steps, or use PlateauedLoss and "
        "LossDiverging of the pack recommended, which look at trends"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.collection_names or self.tensor_regex or self.use_losses_collection):
            raise ParameterError(
                "LossNotDecreasing: no loss to judge; give collection_names or tensor_regex, "
                "or leave use_losses_collection True"
            )

    def requires(self) -> tuple[CollectionConfig, ...]:
        """Return the losses that were chosen."""
        interval = self.collections[0].parameters
        losses = self.collections if self.use_losses_collection else ()
        chosen = selected_collections(
            "LossNotDecreasing", self.collection_names, self.tensor_regex, interval
        )
        return (*losses, *chosen)

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Compare the losses of the step with earlier ones if a comparison is due.

        Args:
            step: What was saved at the step.
            memory: That of `due_comparisons`.
        """
        names = self.collection_names + (("losses",) if self.use_losses_collection else ())
        rows = step.tensors(collections=names, regex=self.tensor_regex)
        if not len(rows):
            return NotApplicable("no loss was saved")
        due = due_comparisons(step, rows, memory, num_steps=self.num_steps, mode=self.mode)
        if isinstance(due, NotEvaluated):
            return due
        return self._judge(step, rows, min(due, key=lambda of: (_fall_percent(of), of.row)))

    def _judge(self, step: StepView, rows: TensorRows, of: Comparison) -> Outcome:
        fall = _fall_percent(of)
        if -fall > self.increase_threshold_percent:
            measure, value = "loss_increase_percent", -fall
            threshold = self.increase_threshold_percent
            message = f"rose by {value:.3g} %, more than {threshold:g} %"
        elif fall < self.diff_percent:
            measure, value, threshold = "loss_decrease_percent", fall, self.diff_percent
            message = f"fell by {value:.3g} %, less than {threshold:g} %"
            if fall < 0:
                message = f"rose by {-fall:.3g} %, and should have fallen by {threshold:g} %"
        else:
            return Passed()
        return IssueFound(
            evidence(
                step,
                rows,
                of.row,
                measure=measure,
                value=value,
                threshold=threshold,
                message=f"{message}, from {of.before:.6g} at step {of.since} to {of.now:.6g} at "
                f"step {of.number}",
                remedy=_REMEDY,
            )
        )


def _fall_percent(of: Comparison) -> float:
    fall = of.before - of.now
    if of.before == 0:
        return math.copysign(math.inf, fall) if fall else 0.0
    return fall / abs(of.before) * 100
