"""ClassImbalance: classes with too few labels, or with mostly wrong predictions."""

from __future__ import annotations

import math
from typing import Annotated, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.curve_rule import Finding
from rule_runtime.engine.findings import issue
from rule_runtime.engine.needs import Needs
from rule_runtime.engine.outcome import Missing, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, AtMost, GreaterThan, Memory, Regex, Rule, Unit
from rule_runtime.facts.class_labels import (
    MAX_CLASSES,
    ClassLabels,
    ClassTallies,
    class_labels,
    targets_of_classes,
    training_classes,
)
from rule_runtime.facts.labels import TRAINING_DATA
from rule_runtime.facts.losses import Losses
from rule_runtime.numerics.label_tally import LabelTally
from rule_runtime.trial.step_view import StepView

__all__ = ["ClassImbalance"]

_MOST: Final = 0.95
"""Share of labels from which a model that always predicts one class looks good."""
_LEARNED: Final = 0.1
"""Share of a guess's loss below which a constant label is learned."""
_ENOUGH: Final = 30
"""Labels of a class that suffice for learning: a share of them has an error of 0.09."""


class ClassImbalance(Rule):
    """Detects rare classes among the labels, and classes with mostly wrong predictions.

    How it decides:
        The rule counts the labels of all saved steps by class: those that `labels_regex` selects,
        otherwise the targets of class losses. After `samples` labels, or at once if it knows all
        training data (XGBoost), it reports:
        * a ratio of the largest count to the smallest above `threshold_imbalance`;
        * with `unlike_validation`, validation of classes that training does not have;
        * a class whose share of wrong predictions is above `threshold_misprediction`.

    Parameters:
        threshold_imbalance: Largest ratio of the counts of two classes.
        threshold_misprediction: Largest share of wrong predictions of a class.
        samples: Labels that must have been counted.
        unlike_validation: True to ignore an imbalance that validation has as well, unless 95 % of
            the rows are of one class and the rare one has less than 30 labels.
        argmax: True if predictions are scores, one for each class on the last axis.
        labels_regex: Regular expression of the labels.
        predictions_regex: Regular expression of the predictions.

    What to try:
        Weigh the classes in the loss (XGBoost: scale_pos_weight), sample the rare ones more often,
        or get more data of them.
    """

    threshold_imbalance: Annotated[float, AtLeast(1)] = 10.0
    threshold_misprediction: Annotated[float, GreaterThan(0), AtMost(1)] = 0.7
    samples: Annotated[int, AtLeast(1), Unit("labels")] = 500
    unlike_validation: bool = False
    argmax: bool = False
    labels_regex: Annotated[tuple[str, ...], Regex()] = (".*labels",)
    predictions_regex: Annotated[tuple[str, ...], Regex()] = (".*predictions",)

    def requires(self) -> tuple[CollectionConfig, ...]:
        """Return collections of the labels and the predictions, with their values."""
        saved = {"save_interval": "500", "save_raw_tensor": "True"}
        names = {"labels": self.labels_regex, "predictions": self.predictions_regex}
        configs = (
            CollectionConfig(name, {"include_regex": "|".join(regex), **saved})
            for name, regex in names.items()
            if regex
        )
        return (*configs, TRAINING_DATA)

    def needs(self) -> Needs:
        """Return `samples` labels."""
        return Needs(elements=self.samples, noun="label")

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Count the labels of the step, and evaluate all counts so far.

        Memory: The state of `ClassTallies`.
        """
        names = (self.labels_regex, self.predictions_regex)
        if not len(step.tensors(regex=self.labels_regex)):
            names = (targets_of_classes(step) or self.labels_regex, ())
        found, reason = class_labels(step, *names, argmax=self.argmax)
        found += training_classes(step)
        tallies = ClassTallies(memory)
        tallies.add(step.mode, found)
        tallied = [(labels, tallies.of(step.mode, labels.name)) for labels in found]
        counted = [pair for pair in tallied if len(pair[1].classes)]
        if not counted:
            raise Missing(reason)
        most = max(tally.total for _, tally in counted)
        if most < self.samples and not any(labels.are_all for labels in found):
            raise self.needs().too_few(most)
        findings = []
        for labels, tally in counted:
            if _may_be_made_up(step, labels, tally):
                continue
            of = tallies.elsewhere(step.mode, labels) if self.unlike_validation else None
            is_other = tallies.are_of_validation(step.mode, labels)
            imbalance = None if is_other else self._imbalance(tally, labels, of)
            unseen = _unseen(tally, of) if tally.total >= self.samples or labels.are_all else None
            every = (imbalance, unseen, self._misprediction(tally))
            findings += [(labels, one) for one in every if one is not None]
        if not findings:
            return Passed()
        labels, worst = max(
            findings, key=lambda of: (of[1].measure != "misprediction", of[1].value)
        )
        measured = (worst.measure, worst.value, worst.threshold)
        return issue(step, (labels.name, labels.worker), measured, worst.message, self)

    def _imbalance(
        self, tally: LabelTally, of: ClassLabels, validation: LabelTally | None
    ) -> Finding | None:
        """Return a finding if a class is rare, or the only one; otherwise None."""
        limit, counts = self.threshold_imbalance, tally.labels
        if counts.sum() < self.samples and not of.are_all:
            return None
        most = int(counts.argmax())
        if len(tally.classes) == 1:
            message = f"class {tally.classes[most]} has {counts[most]} labels, and "
            message += f"none of the other {of.num_classes - 1} classes has any"
            return Finding(math.inf, limit, message, "only_class") if of.num_classes > 1 else None
        may_be_rare = counts < (_ENOUGH if self.unlike_validation else math.inf)
        if validation is not None:
            may_be_rare = tally.rarer_than(validation)
        if of.are_of_rows and counts[most] >= _MOST * counts.sum():
            may_be_rare |= counts < _ENOUGH
        least = int(np.where(may_be_rare, counts, counts[most]).argmin())
        if self.unlike_validation:
            most = _class_of_median_label(counts)
        pair = int(tally.classes[most]), int(tally.classes[least])
        of_weights = of.weighted_ratio(*pair)
        ratio = min(float(counts[most] / counts[least]), of_weights)
        message = f"class {tally.classes[most]} has {counts[most]} labels, and "
        message += f"class {tally.classes[least]} has {counts[least]}, a ratio of {ratio:.4g}"
        message += f"{' by weight' if ratio == of_weights else ''}, more than {limit:g}"
        return Finding(ratio, limit, message, "imbalance") if ratio > limit else None

    def _misprediction(self, tally: LabelTally) -> Finding | None:
        """Return a finding if most predictions of a class are wrong; otherwise None."""
        shares = tally.wrong / np.maximum(tally.predicted, 1)
        at, limit = int(shares.argmax()), self.threshold_misprediction
        message = f"{tally.wrong[at]} of {tally.predicted[at]} examples of class "
        message += f"{tally.classes[at]} are predicted wrongly, a share larger than {limit:g}"
        share = float(shares[at])
        is_found = share > limit and tally.total >= self.samples
        return Finding(share, limit, message, "misprediction") if is_found else None


def _unseen(tally: LabelTally, validation: LabelTally | None) -> Finding | None:
    """Return a finding if most labels of validation are of classes that training does not have.

    Of many classes, some have not been counted yet, or are too many to be counted.
    """
    num_classes = len(tally.classes)
    if validation is None or validation.total < _ENOUGH or 2 * num_classes > MAX_CLASSES:
        return None
    if tally.total < _ENOUGH * num_classes:
        return None
    is_unseen = ~np.isin(validation.classes, tally.classes)
    share = float(validation.labels[is_unseen].sum() / validation.labels.sum())
    message = f"{100 * share:.3g} % of the labels in validation are of classes that training does "
    message += f"not have, such as {validation.classes[is_unseen].max(initial=0)}: more than half"
    return Finding(share, 0.5, message, "unseen") if share > 1 / 2 else None


def _may_be_made_up(step: StepView, labels: ClassLabels, tally: LabelTally) -> bool:
    """Return whether labels may be constants of adversarial training: no model learns these."""
    has_one_of_two = len(tally.classes) == labels.num_classes - 1 == 1
    if labels.are_whole or labels.are_all or not has_one_of_two:
        return False
    shares = [
        of.value / of.zero_output_loss
        for of in step.fact(Losses).losses
        if of.worker == labels.worker and of.zero_output_loss > 0
    ]
    return bool(shares) and min(shares) > _LEARNED


def _class_of_median_label(counts: npt.NDArray[np.int64]) -> int:
    """Return the index of a class: half of all labels are of classes at least as frequent."""
    order = np.argsort(-counts)
    return int(order[np.searchsorted(counts[order].cumsum(), counts.sum() / 2)])
