"""GeneralisationGap: validation that stays far behind training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Final

from hook_layer.format.modes import ModeKeys
from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, GreaterThan, Memory, Unit
from rule_runtime.facts.constant_answers import (
    constant_answer,
    constants_of_labels,
    constants_of_pass,
)
from rule_runtime.facts.loss_inputs import INPUT_VALUES, LOSS_INPUTS
from rule_runtime.facts.loss_rule import Finding
from rule_runtime.facts.selection import evidence
from rule_runtime.facts.validation_answers import PREDICTIONS, added_answers
from rule_runtime.facts.validation_averages import SETTLED_STEPS, are_settling, slow_averages
from rule_runtime.facts.validation_curves import (
    gap_percent,
    has_turned,
    is_learned_by_heart,
    was_there_before,
)
from rule_runtime.facts.validation_guessing import is_guessing, is_too_early
from rule_runtime.facts.validation_passes import keep_beside
from rule_runtime.facts.validation_rule import Training, Validation, ValidationRule
from rule_runtime.facts.validation_scales import (
    is_on_another_scale,
    measured_by,
    numbers_beside,
    times_as_many_rows,
)

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["GeneralisationGap"]


_NO_BETTER: Final = 0.98
_NO_MORE: Final = 1.02
_AT: Final = 1.03
_TIMES_AS_FAR: Final = 1.25
_NUM_NOISE: Final = 4.0
_SETTLING: Final = (
    "validation is measured with the moving averages of batch normalisation, which in Keras are "
    f"right only after some {SETTLED_STEPS} steps of training"
)
_NOT_LEARNED: Final = (
    "Training has not learned more than that either: check that labels belong to their inputs."
)


class GeneralisationGap(ValidationRule):
    """Finds validation losses far above those of training.

    How it decides:
        Each pass of validation (the EVAL steps between two training steps) has a mean loss; with
        XGBoost the other data sets' losses are compared with `train-...` of the same metric, at
        each step.

        It fires for one of these reasons.
        * A gap: `patience` passes in a row, this lies above the median of the latest 5 saved
          training losses, and of those among them since the pass before, by more than `gap_percent`
          of the loss at the beginning (the first training loss, or the median of the first 5, or
          what guessing gives where that is known, whichever is largest) and by more than four times
          the noise of the latest 20, and is more than `ratio` times as large. Where it is known
          what one answer for all rows gives (see below), and that is less, the gap is measured by
          it: not that of boosted trees, nor of classes if it is less than 0.62, as one of them is
          frequent, nor of numbers that scatter 1.5 times as much in training, or whose mean is half
          a standard deviation away there. A gap that was there before anything was learned (the
          training loss beside the first pass had not fallen by a tenth) must have grown since, or
          the ratio of the two losses doubled. Squares, of MSELoss, SmoothL1Loss and HuberLoss, are
          also compared by their roots, the typical errors. Measured by the beginning, and not by
          the training loss of now as Overfit does: that goes towards zero in many a good training.
          Boosted trees always fit their training data better: 1.25 times the gap is allowed while
          validation is within 2 % of its best.
        * Nothing is learned but by heart, after 4 passes or more: the training loss fell by more
          than 3 % and 1.6 times the noise (0.8 times it where the median of the latest 3 passes is
          5 % above the first, and of the latest 8 the later is larger in 20 of 28 pairs); no pass
          of validation was ever below 98 % of the first one (99.8 % with XGBoost, where it is the
          first round), or below 90 % of the loss at the beginning; the median of the latest 3 is
          not below the first, and 0.5 % above the smallest; and the last one lies above the
          training loss by a third of what that fell. From 40 rounds on a fall by 0.3 % and 0.2 %
          above the smallest are enough for boosted trees.
        * Validation has turned, `patience` passes in a row: the latest 3 passes rise, the last one
          lies above the smallest by a tenth of what the gap is measured by, and not more than the
          noise below the training loss, and the latter has not risen by 1.25 times its noise
          (median of the latest 10 against the 10 before); of boosted trees, from 40 rounds on, if
          it lies above the smallest by a quarter of what the training loss fell, which also
          measures likelihoods that have no zero. Neither is said of a loss that is larger in
          training than at the beginning, as a part of a loss may be that the others push up.
        * Validation was never better than one answer for all rows: from 130 steps and 3 passes on
          (for `patience` a pass counts from 90 steps on, if two were before it, or it is not 10 %
          above that), no pass was below 99 % of what that gives, the median of the latest 3 is
          above 97 % of the first or the last one 3 % above the smallest, and the last one is above
          98 % of the one before; or if no pass was lower by more than luck allows, 40 % /
          sqrt(rows), but 1 % at least, and 3 % of 6 passes, the median of the latest 5 by half of
          that, and the latter half does not fall: its median is not 0.5 %, or a third of the luck
          of the rows, below that of the former, and the last pass is not the lowest; or if the
          training loss, and 1.6 times its noise, is below 90 % of that, and the last pass above 99
          % of the one before; or if the latest 3 are above 1.5 times that, and their median is not
          below the first, and the last one not below the first of the 3.

        What one answer gives is known of classes that are whole numbers, ln(number of classes), of
        losses of other names only if training began near it (0.8 to 2 times); of yes and no that
        each are 30 % or more of the 50 rows or more of a pass, their entropy, if training began
        near ln 2 (0.85 to 1.25 times); and of MSELoss, L1Loss, SmoothL1Loss and HuberLoss: the
        variance of the targets of the pass, or its root. Where a pass is a single step, and values
        of its inputs were saved, it is known exactly, also of losses of other names that prove to
        be squares, distances or cross entropies: the entropy of how frequent classes are, of 20
        rows for each or more; and that of two classes, each 30 % or more, also where a pass has
        several steps. Of 20 rows or more each column of numbers has an answer of its own, and of 50
        each of 16 columns or more of yes and no, as pixels; by what that makes of a step of 50 rows
        the variance of a longer pass is less. For boosted trees labels tell it where their values
        were saved: for `rmse` and `mae` their scatter, for `logloss` and `mlogloss` their entropy,
        if that is 0.75 of the largest or more and no class of two below 30 %. There it takes 20
        rounds, a training loss that fell by 3 %, by which validation lags as above, and a median of
        the latest 3 above 99.5 %, that did not fall in the latest 8. Numbers one of which, five
        standard deviations away, has a tenth of the variance are not compared with one answer, and
        their gap is not judged.
        * Answers are no better than chance. Where `labels` and `predictions` of classes were saved
          with values, they are compared with what chance gives, by the permutation test. It fires
          if the answers of the latest 3 passes have nothing to do with the labels: not more than 3
          standard deviations above chance, and less than 15 % of what chance leaves (Cohen's
          kappa), of rows enough to show 20 % of what is attainable; while, from 100 steps on, those
          of the latest 20 saved training steps have, by 6 standard deviations and 10 % more.
          Boosted trees, which save no answers of training, must be within 2 standard deviations and
          10 %, from 20 rounds on. And where no loss of validation was saved, it fires if more than
          90 % of what chance leaves is right in training, and 30 % less of it, and four standard
          errors, in the latest 2 passes.

        A pass is judged at the training step behind it, or at its last step once it is as long as
        the one before. Losses that are sums are divided by how many times the rows of training,
        `..._input_0`, they are of, and not compared with one answer; they are taken for sums if one
        was larger than a mean can be, by the sizes of outputs and targets, or if the first pass
        stands to the training loss as the rows do, and the training loss is not known as a mean.
        Where values show that only losses of validation are sums, these are not judged. Metrics
        that should grow, and shares of errors, are not judged. A loss that falls below zero is
        measured by how far it fell, and without the ratio. Losses of numbers are not judged if the
        standard deviation of their targets is five times that of training, or a fifth of it: these
        are in other units. Of more than 32 losses the first 32 are judged. Nothing is judged in the
        first 500 steps of a model of Keras with BatchNormalization: validation takes its moving
        averages, which a step moves by 1 %, and until they are right a good model seems to have
        learned nothing; which models have them is known by the names of their weights, if saved.

    Parameters:
        gap_percent: Validation minus training, in percent of the loss at the beginning.
        ratio: Validation divided by training.
        patience: Passes of validation in a row, or saved steps with XGBoost.

    What to try:
        More data or augmentation, a smaller model, weight decay or dropout, an earlier end; compare
        how the two sets were made.
    """

    gap_percent: Annotated[float, GreaterThan(0), Unit("% of the loss at the beginning")] = 20.0
    ratio: Annotated[float, AtLeast(1), Unit("times the training loss")] = 2.0
    patience: Annotated[int, AtLeast(1), Unit("passes")] = 2

    collections = (
        *ValidationRule.collections,
        CollectionConfig(LOSS_INPUTS.name, {**LOSS_INPUTS.parameters, "eval.save_interval": "1"}),
        INPUT_VALUES,
    )
    measure: ClassVar[str] = "gap_percent"
    remedy: ClassVar[str] = (
        "Take more data or augment it, a smaller model, weight decay or dropout, or end the "
        "training earlier; check that both sets were made in the same way."
    )

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Judge losses of validation, and answers.

        Args:
            step: What was saved at the step.
            memory: What `ValidationRule` keeps; `answers`, that of `added_answers`; `has_losses`,
                whether a loss of validation was saved; `passed`, that of `constants_of_pass`.
        """
        answers = added_answers(step, memory.setdefault("answers", {}))
        if step.mode is ModeKeys.EVAL:
            if not memory.get("steps"):
                memory["passed"] = {}
                keep_beside(memory, slow_averages(step))
            found = constants_of_pass(step, memory.setdefault("passed", {}))
            keep_beside(memory, found)
        outcome = super().check(step, memory)
        memory["has_losses"] = memory.get("has_losses", False) or "validation" in memory
        num_steps = memory.get("now", 0) - memory.get("begin", 0)
        if are_settling(memory.get("beside", {}), num_steps):
            return outcome if isinstance(outcome, NotEvaluated) else NotEvaluated(_SETTLING)
        if answers is None or isinstance(outcome, IssueFound):
            return outcome
        message = ""
        if answers.have_nothing_to_do_with_labels:
            message = "have nothing to do with the labels"
        elif answers.are_right_in_training_only and not memory["has_losses"]:
            message = f"are not those of training, of which {answers.training.share:.3g} is right"
        if not message:
            return Passed()
        rows = step.tensors(regex=(f"^{PREDICTIONS}$",))
        share = answers.passes[-1].share
        return IssueFound(
            evidence(
                step,
                rows,
                0,
                measure="share_beyond_chance",
                value=share,
                threshold=answers.training.share,
                message=f"those of validation {message}: of what chance leaves {share:.3g} is "
                "right",
                remedy=self.remedy,
            )
        )

    def beside(self, step: StepView) -> Mapping[str, float]:
        """Return how many rows losses are of, and what guessing gives where that is known.

        Args:
            step: A step with losses.
        """
        return numbers_beside(step) | constants_of_labels(step)

    def judge(self, validation: Validation, training: Training) -> Finding | None:
        """Compare the gap with the beginning, and the passes of validation with each other.

        Args:
            validation: The loss of validation.
            training: The losses of training.
        """
        is_settling = are_settling(validation.beside, training.num_steps)
        if is_settling or is_on_another_scale(validation, training):
            return None
        validation = validation.divided(times_as_many_rows(validation, training))
        constant = constant_answer(validation, training)
        # Training that goes on from a checkpoint begins with what it had learned.
        guess = max(constant, validation.beside.get(f"guess/{validation.name}", 0.0))
        scale = max(training.start, training.fall, guess)
        if not scale:
            return None
        # Behind a change of task most of the latest losses are still those of the task before.
        near = training._replace(now=max(training.now, training.lately))
        by = measured_by(validation, scale, constant)
        distance, gap = validation.now - near.now, gap_percent(validation, near, by, self.ratio)
        is_far = gap > self.gap_percent and distance > _NUM_NOISE * training.noise
        is_far &= near.now <= 0 or validation.now > self.ratio * near.now
        is_far &= not validation.beside.get(f"outlier/{validation.name}")
        is_far &= not was_there_before(validation, near)
        has_risen = training.now > training.start
        if validation.of_trees and validation.now <= _NO_MORE * validation.lowest:
            is_far &= gap > _TIMES_AS_FAR * self.gap_percent
        message = f"the loss of validation is {validation.now:.3g} and that of training "
        message += f"{near.now:.3g}: "
        if is_far and not has_risen:
            message += f"a gap of {gap:.3g} % of {by:.3g}, by which training was measured, more "
            return Finding(gap, gap, self.gap_percent, f"{message}than {self.gap_percent:g} %")
        if not has_risen and has_turned(validation, training, scale):
            message += f"it was {validation.lowest:.3g} at its best, and has risen since"
        elif is_learned_by_heart(validation, training):
            message += f"it was {validation.first:.3g} at first and has never been much below"
        elif constant and is_guessing(validation, training, constant):
            message += f"{_place(validation, constant)} {constant:.4g}, which one answer for all "
            message += "rows gives"
            remedy = _NOT_LEARNED if training.now > _NO_BETTER * constant else ""
            is_early = is_too_early(validation, training)
            return Finding(gap, gap, 0.0, message, remedy, is_early)
        else:
            return None
        return Finding(gap, gap, 0.0, message)


def _place(validation: Validation, constant: float) -> str:
    """Return where validation is, of what one answer gives."""
    if validation.now <= _AT * constant:
        return "it stays at"
    return "it was never below" if validation.lowest >= constant else "it was hardly ever below"
