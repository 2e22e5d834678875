"""SuspiciouslyGood: inputs that hold the answer, validation that is next to perfect."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Final

import numpy as np

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, GreaterThan, LessThan, Memory, Unit
from rule_runtime.facts.loss_advice import input_values_advice
from rule_runtime.facts.loss_inputs import INPUT_VALUES, LOSS_INPUTS
from rule_runtime.facts.loss_rule import Finding
from rule_runtime.facts.model_inputs import KERAS_INPUTS, LAYER_INPUTS, MODEL_INPUT
from rule_runtime.facts.selection import evidence, finite_means, is_training
from rule_runtime.facts.telling_inputs import told_targets
from rule_runtime.facts.telling_places import foreseen_places
from rule_runtime.facts.telling_texts import are_losses_judged, losses_of_texts
from rule_runtime.facts.tree_labels import spread_of_labels
from rule_runtime.facts.tree_limits import nearest_of_trees
from rule_runtime.facts.validation_rule import (
    Training,
    Validation,
    ValidationRule,
    training_of,
)

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["SuspiciouslyGood"]

_DISTANCE: Final = re.compile(r"rms|mae|map[eh]|mphe|gamma|poisson|tweedie|deviance")
_AS_GOOD: Final = 1.5
_AS_GOOD_TREES: Final = 1.1
_TREES: Final = 10.0
_DOMINATING: Final = 0.5
_DOMINATED: Final = 2.0
_ETA: Final = ("^hyperparameters/(eta|learning_rate)$",)
_CLASSES: Final = ("^hyperparameters/num_class$",)
_LOOKING_AHEAD: Final = 0.05
_NETS: Final = "the loss of validation of a net tells nothing by itself"
_NO_TABLE: Final = f"{_NETS}, and what was saved of inputs and targets cannot be compared"
_SEEN: Final = "its targets stand in the model's input"


class SuspiciouslyGood(ValidationRule):
    """Finds inputs that hold the answer, and validation that is too good to be true.

    How it decides:
        * Losses of boosted trees: those of validation are compared with `train-...` of the same
          metric, at each step. It fires if, `patience` steps in a row, one is less than 10 times
          `max_loss_percent` of the loss at the beginning (the first training loss, or the median of
          the first 5 if that is larger, which is the loss of guessing), and at most 1.1 times the
          median of the latest 5 saved training losses; twice that where one feature has more than
          half of the total gain. How well guessing does where a distance is measured (rmse, mae and
          the like) the losses do not tell; of these rmse is judged, where labels are saved beside
          it: its square must be below `max_loss_percent` of their variance, which is what the mean
          gives, or of the mean variance of their columns, where values of these were saved.

        Losses of nets tell next to nothing: many tasks are learned without a mistake. They are
        judged for texts only, as below; a pass (the EVAL steps between two training steps) at the
        training step behind it, or at its last step once it is as long as the one before, if it is
        at most 1.5 times the median of the latest 5 saved training losses. Of more than 32 losses
        the first 32 are judged. Where neither they nor inputs could be, nothing is evaluated.
        * Boosted trees with a small `eta` cannot come near to zero in time: `logloss` (and
          `mlogloss` where `num_class` was saved) is also too good if, with one feature of more than
          half of the gain, it is a quarter of what it began with, at most 1.1 times the training
          loss, and as small as that of scores which went 0.8 of the way (0.9 for `mlogloss`) that
          they can go in so many rounds, if all rows are right in each of them.
        * Texts. Where targets are the model's input moved by one place (whole numbers [B, L], as of
          a language model; the end of rows may be negative, as padding; no more than half of what
          is asked is the same) and no other input may tell the text, as one to translate or an
          image (unless a quarter of the rows share it with other texts, or it is a mask of places),
          the loss of validation is too good below 5 % of that at the beginning: what comes next in
          a text is not known so well, unless the model sees it; or if, `patience` batches in a row,
          the loss of the last place, behind which what is asked stands nowhere in the text, is on
          average more than 1.5 times that of the places before, and of the 4 just before, by 4
          standard errors or more (8 rows and 8 places at least). Too good below 5 % is that of
          CrossEntropyLoss, NLLLoss or a function, however small the training loss is, if at each of
          32 places or more with a target (it is negative where nothing is asked) the input that a
          layer is given first is the target itself: a mask or a shift was forgotten. Half of all
          that is asked must stand at other places, too, which are no padding then; or all that
          layers are given has the places of the input, so that nothing is rebuilt of less than
          itself. While there is no loss of validation, that of training is judged by this.
        * Inputs. Where values of what a model gets are saved (`{model}_input_...`, `inputs` of
          Keras, `input_values` of boosted trees), and of targets (`..._input_1` of the loss, or
          `labels`), the columns of an input are compared with targets of a number or class in each
          row; of series [B, T, C], also with those of the last times (targets [B, T'] or [B, T', K]
          that vary in time).
        * Numbers are told by a column that rises, or falls, with them everywhere, unless most
          columns nearly do, as of a series that only grows. A single number is told, too, of 5 to
          128 columns by up to three of which it is a sum, each times a number, but for rounding, if
          a linear fit of the others leaves 2 % of the variance open; and by one whose ranks tell
          its ranks but for 0.5 % of their variance, in four times the rows, if the others leave 20
          %.
        * Classes (also numbers of which a batch has less than half as many as rows) are told by
          columns that are equal in all rows of a class and together differ between all of them or,
          of 8 columns or more that are no image, by columns that part each class from the others by
          a gap wider than either side, no more than two of them for a class. Three classes or more
          are told as well, of whatever inputs, if each has a column with one value in all of its
          rows that no row of another has; of 8 columns of real numbers or more also by a range of
          numbers in which no row of another lies, if no more than 4 mark a class. Texts tell
          classes by a word, or two or three in a row, that all texts of the class have, and no
          other, wherever it stands.
        * Two classes are told, too, by one or two columns (of a series also, at some time) with a
          limit that all rows of one are above and all of the other below, if one row in 16 lies
          close to it, within a quarter of the standard deviation; or with a value that all rows of
          one have and none of the other. Inputs of an integer type may be words: equal values of
          them tell classes, no gaps or limits. Two classes, and ranges, tell nothing if a further
          column comes near in half of the batches (a correlation of more than 0.9).

        It fires if the same columns tell them in all batches in which the target varies, in `rows`
        different rows or more together, of classes four times as many: an ordinary feature may be
        right for long. The first row of each class does not count, and of the most frequent one not
        more than 4 for each that does of the others; where classes last for several rows, each
        change is one row. No row counts of a batch whose targets turn less than 4 times from rising
        to falling or back, or that lies class by class, as any column that counts rows would tell
        them. Of several targets half must be told, and none refuted, by inputs of twice as many
        columns or more, and where no layer is given fewer numbers than there are targets: they may
        be what is to be rebuilt. An input that is the targets themselves is left out, and those of
        a model whose outputs have another size than what the loss compares.

    Parameters:
        max_loss_percent: Validation loss, in percent of the loss at the beginning.
        patience: Passes of validation in a row, or saved steps with XGBoost.
        rows: Different rows that must show that a column tells a number; four times that a class.

    What to try:
        Train without the most important column; split by time or by group; look for duplicates.
    """

    max_loss_percent: Annotated[float, GreaterThan(0), LessThan(10), Unit("%")] = 0.2
    patience: Annotated[int, AtLeast(1), Unit("passes")] = 2
    rows: Annotated[int, AtLeast(2), Unit("rows")] = 50

    collections = (
        *ValidationRule.collections,
        CollectionConfig("labels", {"save_raw_tensor": "True"}),
        LOSS_INPUTS,
        CollectionConfig("feature_importance", {"save_interval": "10"}),
        CollectionConfig("hyperparameters", {"save_interval": "10"}),
        INPUT_VALUES,
        CollectionConfig("model_inputs", {"save_interval": "10"}),
        KERAS_INPUTS,
        LAYER_INPUTS,
    )
    measure: ClassVar[str] = "validation_loss"
    remedy: ClassVar[str] = (
        "Look for the target among the inputs (a column computed from it, a number of the row, a "
        "time after the event), a model of sequences that sees what comes next, rows that are in "
        "both sets, and scaling fitted on all data."
    )

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Judge losses of validation, and what the inputs tell of the targets.

        Args:
            step: What was saved at the step.
            memory: What `ValidationRule` keeps; `told`, that of `told_targets`.
        """
        of_inputs = memory.setdefault("told", {})
        is_judged, message = told_targets(step, of_inputs, self.rows)
        is_text, foreseen = foreseen_places(step, of_inputs, self.patience)
        of_inputs["judged"] = of_inputs.get("judged", False) or is_text
        outcome = super().check(step, memory)
        if isinstance(outcome, NotEvaluated) and is_training(step):
            outcome = self._of_training(step, memory) or outcome
        if isinstance(outcome, Passed) and not (of_inputs["judged"] or are_losses_judged(memory)):
            outcome = NotEvaluated(_NO_TABLE if "met" in of_inputs else _no_values(step))
        if isinstance(outcome, IssueFound) or not (is_judged or is_text):
            return outcome
        found = message or foreseen
        if found is None:
            return Passed()
        return IssueFound(
            evidence(
                step,
                step.tensors(regex=(MODEL_INPUT,)),
                found.at,
                measure=found.measure,
                value=found.value,
                threshold=found.threshold,
                message=found.sentence,
                remedy=self.remedy,
            )
        )

    def _of_training(self, step: StepView, memory: Memory) -> IssueFound | None:
        """Judge losses of training that see their targets, where there are none of validation."""
        rows = step.tensors(collections=("losses",))
        for at, pair in enumerate(zip(rows.names, rows.workers, strict=True)):
            message = training_of(memory, pair)
            if message is None or not memory["beside"].get(f"seen/{pair[0]}"):
                continue
            limit = _LOOKING_AHEAD * message.start
            if not 0 <= message.now < limit:
                continue
            return IssueFound(
                evidence(
                    step,
                    rows,
                    at,
                    measure="training_loss",
                    value=message.now,
                    threshold=limit,
                    message=f"the loss of training is {message.now:.3g}, below {limit:.3g}, and "
                    f"{_SEEN}",
                    remedy=self.remedy,
                )
            )
        return None

    def beside(self, step: StepView) -> Mapping[str, float]:
        """Return how far labels scatter, and how far trees can go and what the best feature gains.

        Args:
            step: A step with losses.
        """
        found = {}
        spread = spread_of_labels(step)
        if math.isfinite(spread):
            found["std"] = spread
        gains = finite_means(step.tensors(regex=("^feature_importance/total_gain/",)))
        if len(gains) and np.nansum(gains) > 0:
            found["share"] = float(np.nanmax(gains) / np.nansum(gains))
        rates = finite_means(step.tensors(regex=_ETA))
        if np.isfinite(rates).any():
            found["way"] = float(np.nanmax(rates)) * (step.mode_step + 1)
        classes = finite_means(step.tensors(regex=_CLASSES))
        if np.isfinite(classes).any():
            found["classes"] = float(np.nanmax(classes))
        return found | losses_of_texts(step)

    def judge(self, validation: Validation, training: Training) -> Finding | None:
        """Compare validation with the beginning and with training.

        Args:
            validation: The loss of validation.
            training: The losses of training.
        """
        by_trees = validation.of_trees
        share = self.max_loss_percent / 100
        limit = share * training.start * _TREES if by_trees else 0.0
        is_seen = validation.beside.get(f"seen/{validation.name}", 0.0) > 0
        if is_seen or f"next/{validation.name}" in validation.beside:
            limit = _LOOKING_AHEAD * training.start
        if by_trees and _DISTANCE.search(validation.name):
            is_rms = validation.name.partition("-")[2] == "rmse"
            limit = math.sqrt(share) * validation.beside.get("std", 0.0) if is_rms else 0.0
        as_good = _AS_GOOD_TREES if by_trees else _AS_GOOD
        if validation.beside.get("share", 0.0) > _DOMINATING:
            as_good = _DOMINATED
            if validation.now <= _AS_GOOD_TREES * training.now:
                limit = max(limit, nearest_of_trees(validation, training))
        if not 0 <= validation.now < limit:
            return None
        if validation.now > as_good * training.now and not is_seen:
            return None
        why = f"about as small as that of training, {training.now:.3g}"
        if is_seen:
            why = _SEEN
        return Finding(
            limit - validation.now,
            validation.now,
            limit,
            f"the loss of validation is {validation.now:.3g}, below {limit:.3g}, and {why}",
        )


def _no_values(step: StepView) -> str:
    of_targets = "no values of the model's inputs were saved beside those of the targets"
    return f"{_NETS}, and {of_targets}: {input_values_advice(step)}"
