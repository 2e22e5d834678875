"""GeneralisationGap: validation that stays far behind training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.detectors.baseline import is_never_better, margin_of
from rule_runtime.detectors.generalisation import (
    gap_percent,
    has_gap,
    has_learned,
    has_turned,
    is_learned_by_heart,
)
from rule_runtime.detectors.streak import streak
from rule_runtime.engine.outcome import IssueFound, NotApplicable, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, GreaterThan, Memory, Rule, Unit
from rule_runtime.facts.losses import INPUT_VALUES, LOSS_INPUTS
from rule_runtime.facts.selection import evidence
from rule_runtime.facts.validation import (
    SETTLED_STEPS,
    StepLosses,
    Validation,
    ValidationHistory,
    has_slow_averages,
    on_one_scale,
)

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["GeneralisationGap"]

_LEARNING_STEPS: Final = 90
"""Steps after which validation should be better than a constant: nearly two epochs of 50 steps."""

_OF_TREES: Final = 1.25
"""Times the gap that boosted trees may have: they always fit their training data better."""

_SETTLING: Final = (
    "batch normalisation of Keras validates with moving averages, which take about "
    f"{SETTLED_STEPS} training steps to settle"
)
_REMEDY: Final = (
    "Use more data or augmentation, a smaller model, weight decay or dropout, or stop earlier; "
    "check that both sets were made in the same way."
)
_NOT_LEARNED: Final = "Training has not learned more: check that labels belong to their inputs."


class _Gap(NamedTuple):
    value: float
    threshold: float
    message: str
    remedy: str = _REMEDY


class GeneralisationGap(Rule):
    """Detects validation losses far above those of training, or never better than a constant.

    How it decides:
        It judges the mean loss of each validation pass. It fires, `patience` passes in a row, if:
        * the loss exceeds that of training by more than `gap_percent` of the loss at the beginning,
          or of the best constant predictor's if smaller, and by more than `ratio`;
        * the latest 3 passes rise, far above the best one, while training does not;
        * no pass was better than the best constant predictor;
        * training learns, but no pass was better than the first.

    Parameters:
        gap_percent: Validation minus training, in percent of the loss at the beginning.
        ratio: Validation divided by training.
        patience: Passes of validation in a row, or saved steps with XGBoost.

    What to try:
        More data or augmentation, a smaller model, weight decay or dropout, an earlier stop.
    """

    gap_percent: Annotated[float, GreaterThan(0), Unit("% of the loss at the beginning")] = 20.0
    ratio: Annotated[float, AtLeast(1), Unit("times the training loss")] = 2.0
    patience: Annotated[int, AtLeast(1), Unit("passes")] = 2

    collections = (
        CollectionConfig("losses", {"save_interval": "10", "eval.save_interval": "1"}),
        CollectionConfig(LOSS_INPUTS.name, {**LOSS_INPUTS.parameters, "eval.save_interval": "1"}),
        INPUT_VALUES,
    )

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Judge the validation passes that end with a step.

        Args:
            step: What was saved at the step.
            memory: What `ValidationHistory` keeps; `streaks`, findings in a row of each loss;
                `settles`, whether moving averages must settle first.
        """
        memory["settles"] = memory.get("settles", False) or has_slow_averages(step)
        ended = ValidationHistory(memory).add(step)
        if not ended:
            return NotApplicable("no validation pass ended at this step")
        if memory["settles"] and ended[0].num_steps < SETTLED_STEPS:
            return NotEvaluated(_SETTLING)
        streaks: dict[str, int] = memory.setdefault("streaks", {})
        found = {}
        for validation in filter(None, map(on_one_scale, ended)):
            gap = self._judge(validation)
            key = f"{validation.worker}/{validation.name}"
            if streak(streaks, is_bad=gap is not None, name=key) >= self.patience and gap:
                found[validation.name, validation.worker] = gap
        losses = step.fact(StepLosses)
        found = {series: gap for series, gap in found.items() if series in losses.at_row}
        if not found:
            return Passed()
        series = max(found, key=lambda series: (found[series].value, series))
        details = {"measure": "gap_percent", **found[series]._asdict()}
        return IssueFound(evidence(step, losses.rows, losses.at_row[series], **details))

    def _judge(self, validation: Validation) -> _Gap | None:
        """Return what is wrong with a loss of validation, None if nothing is."""
        course, scale, baseline = validation.course, validation.scale, validation.baseline
        if not scale:
            return None
        percent = gap_percent(course, scale, self.ratio, by_roots=validation.is_of_squares)
        limit = self.gap_percent * (_OF_TREES if validation.of_trees else 1)
        message = f"the loss of validation is {course.now:.3g} and that of training "
        message += f"{course.training:.3g}: "
        has_risen = course.training > course.start
        if not has_risen and percent > limit and has_gap(course, self.ratio):
            message += f"a gap of {percent:.3g} % of {scale:.3g}, more than {limit:g} %"
            return _Gap(percent, limit, message)
        if not has_risen and has_turned(course, scale):
            message += f"it has risen from {course.lowest:.3g}, its best"
            return _Gap(percent, 0.0, message)
        if _is_no_better_than_constant(validation):
            message += f"it was never better than the {baseline:.4g} of a constant predictor"
            is_learned = has_learned(baseline, baseline - course.training, course.noise)
            return _Gap(percent, 0.0, message, _REMEDY if is_learned else _NOT_LEARNED)
        if is_learned_by_heart(course):
            message += f"it was {course.first:.3g} at first, and never better since"
            return _Gap(percent, 0.0, message)
        return None


def _is_no_better_than_constant(validation: Validation) -> bool:
    """Return whether no pass was better than the best constant predictor."""
    targets, baseline, course = validation.targets, validation.baseline, validation.course
    is_early = validation.num_steps < _LEARNING_STEPS or len(course.passes) <= 1
    if targets is None or not baseline or is_early:
        return False
    return is_never_better(course.passes, course.lowest, baseline, margin_of(targets.rows))
