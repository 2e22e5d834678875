"""GeneralisationGap: validation losses far above training, or no better than a baseline."""

from __future__ import annotations

import math
import re
from typing import Annotated, Final

import numpy as np

from hook_layer.frameworks import XGBOOST
from rule_runtime.detectors.curves import is_never_better, margin_of
from rule_runtime.detectors.streak import streak
from rule_runtime.engine.findings import issue
from rule_runtime.engine.needs import passes_of_patience
from rule_runtime.engine.outcome import IssueFound, NotApplicable, NotEnough, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, GreaterThan, Memory, Rule, Unit
from rule_runtime.engine.selection import saved_every
from rule_runtime.facts.framework import framework_of
from rule_runtime.facts.losses import INPUT_VALUES
from rule_runtime.facts.validation_baseline import Baseline, baseline_of, is_comparable
from rule_runtime.facts.validation_passes import (
    SETTLED_STEPS,
    ValidationPass,
    has_unsettled_averages,
    validation_passes,
)
from rule_runtime.trial.step_view import StepView

__all__ = ["GeneralisationGap"]

_ERROR_RATE: Final = re.compile(r"-m?error(@|$)")
_OF_SQUARES: Final = ("MSELoss_output", "SmoothL1Loss_output", "HuberLoss_output")
_NUM_LATEST: Final = 8
"""Number of latest passes that are stored."""
_MIN_PASSES: Final = 3
"""Minimum number of passes before one must be better than the baseline."""
_LEARNED: Final = 0.97
"""Share of the baseline below which training has learned."""
_LEAST_STEPS: Final = 40
"""Steps during which validation may lag behind training, if a pass follows each step."""
_LEARNING_STEPS: Final = 90
"""Steps after which training should have learned: nearly two epochs of 50 steps."""

_SETTLING: Final = "moving averages of Keras's batch normalisation must settle"
_CHECK_LABELS: Final = "Check that labels belong to their inputs, and that both sets are alike."


class GeneralisationGap(Rule):
    """Detects validation losses far above those of training, or never better than a baseline.

    How it decides:
        The baseline is the loss of the best constant predictor, if known. The rule reports these
        after `patience` validation passes in a row:
        * the validation loss exceeds the training loss by `gap_percent` of the baseline, and by the
          factor `ratio`;
        * of 3 passes or more, none was better than the baseline, and they do not fall.

    Parameters:
        gap_percent: Validation minus training, in percent of the baseline.
        ratio: Validation divided by training.
        patience: Validation passes in a row, or saved rounds of XGBoost.

    What to try:
        Check first that validation inputs and loss are computed as in training. If so, use more
        data, augmentation, a smaller model, weight decay or dropout, or stop earlier.
    """

    gap_percent: Annotated[float, GreaterThan(0), Unit("% of the baseline")] = 25.0
    ratio: Annotated[float, AtLeast(1), Unit("times the training loss")] = 2.0
    patience: Annotated[int, AtLeast(1), Unit("passes")] = 2

    collections = (
        *saved_every(10, "losses", "loss_inputs", **{"eval.save_interval": 1}),
        INPUT_VALUES,
    )

    needs = passes_of_patience

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Evaluate the validation passes that a step finishes.

        Memory: The state of `validation_passes`, with each loss's first, lowest and latest passes
        and its bad streak.
        """
        passes = validation_passes(step, memory, with_targets=True)
        if not passes:
            return NotApplicable("no validation pass ended at this step")
        if has_unsettled_averages(step, passes[0].training_step):
            raise NotEnough(SETTLED_STEPS, "step", passes[0].training_step, _SETTLING)
        found = [bad for one in passes if (bad := self._judge(step, one)) is not None]
        by_excess = sorted(found, key=lambda one: one.evidence.value / one.evidence.threshold)
        return by_excess[-1] if by_excess else Passed()

    def _judge(self, step: StepView, one: ValidationPass) -> IssueFound | None:
        """Return the finding of a loss after `patience` bad passes in a row; otherwise None."""
        notes = one.notes
        first = notes.setdefault("first", [one.validation, one.training])
        notes["lowest"] = min(notes.get("lowest", math.inf), one.validation)
        notes["latest"] = [*notes.get("latest", ()), one.validation][-_NUM_LATEST:]
        baseline, found = baseline_of(one), None
        # Error rates are close to zero from the beginning.
        if not _ERROR_RATE.search(one.loss) and is_comparable(one, *first):
            found = self._gap(step, one, baseline) or _no_better(step, one, baseline)
        return found if streak(notes, is_bad=found is not None) >= self.patience else None

    def _gap(self, step: StepView, one: ValidationPass, baseline: Baseline) -> IssueFound | None:
        sizes = np.maximum([one.validation, one.training, baseline.loss], 0)
        validation, training, scale = np.sqrt(sizes) if one.loss.startswith(_OF_SQUARES) else sizes
        gap = 100 * (validation - training) / scale if scale > 0 else 0.0
        is_gap = gap > self.gap_percent and validation > self.ratio * training
        if not is_gap or one.training > one.start:
            return None
        text = f"the validation loss is {one.validation:.3g} and the training loss "
        text += f"{one.training:.3g}: a gap of {gap:.3g} % of the baseline {baseline.loss:.3g}, "
        text += f"more than {self.gap_percent:g} %"
        measured = ("gap_percent", gap, self.gap_percent)
        return issue(step, (one.loss, one.worker), measured, text, self)


def _no_better(step: StepView, one: ValidationPass, baseline: Baseline) -> IssueFound | None:
    latest, lowest = np.array(one.notes["latest"]), one.notes["lowest"]
    has_learned = 0 < one.training < _LEARNED * baseline.loss
    should_learn = math.isfinite(baseline.rows) and one.training_step >= _LEARNING_STEPS
    is_early = one.training_step < _LEAST_STEPS and framework_of(step) is not XGBOOST
    if is_early or not (has_learned or should_learn) or len(latest) < _MIN_PASSES:
        return None
    margin = margin_of(baseline.rows)
    if not is_never_better(latest, lowest, baseline.loss, margin):
        return None
    text = f"the validation loss, now {one.validation:.3g}, was never better than the baseline, "
    text += f"{baseline.loss:.4g}; the training loss is {one.training:.3g}"
    measured = ("best_validation_percent", 100 * lowest / baseline.loss, 100 * (1 - margin))
    return issue(step, (one.loss, one.worker), measured, text, _CHECK_LABELS)
