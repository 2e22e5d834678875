"""ClassImbalance: classes with too few labels, or that are mostly predicted wrongly."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import numpy as np

from hook_layer.format.modes import ModeKeys
from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import Evidence, IssueFound, Missing, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, AtMost, GreaterThan, Memory, Regex, Rule, Unit
from rule_runtime.facts.class_labels import ClassTallies
from rule_runtime.numerics.label_tally import LabelTally, rarest_class

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["ClassImbalance"]

_ENOUGH: Final = 30
"""Labels of a class from which it can be learned: a share of them has an error of 0.09."""

_REMEDY: Final = (
    "Weigh the classes in the loss (XGBoost: scale_pos_weight), sample the rare ones more often, "
    "or get more data of them; judge by a metric that rare classes count in."
)


class ClassImbalance(Rule):
    """Detects rare classes among the labels, and classes that are mostly predicted wrongly.

    How it decides:
        It counts the labels of all saved steps by class and mode. From `samples` labels on, it
        fires if the ratio of the largest count to the smallest exceeds `threshold_imbalance`, or if
        the share of wrong predictions of a class exceeds `threshold_misprediction`. Rows that come
        again in each step count once. With `unlike_validation`, only classes count that are more
        than three times as rare in training as in validation; without modes, only classes with
        fewer than 30 labels.

    Parameters:
        threshold_imbalance: Largest ratio of the counts of two classes.
        threshold_misprediction: Largest share of wrong predictions of a class.
        samples: Labels that must have been counted.
        unlike_validation: True to compare the ratios of training with those of validation.
        argmax: True to take the largest number along the last axis of predictions as the class.
        labels_regex: Regular expression of the labels.
        predictions_regex: Regular expression of the predictions.

    What to try:
        Weights for the classes, other sampling, more data of the rare ones.
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
        return tuple(
            CollectionConfig(
                name,
                {
                    "include_regex": "|".join(regex),
                    "save_interval": "500",
                    "save_raw_tensor": "True",
                },
            )
            for name, regex in (
                ("labels", self.labels_regex),
                ("predictions", self.predictions_regex),
            )
            if regex
        )

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Count the labels of the step, and judge what has been counted.

        Args:
            step: What was saved at the step.
            memory: What `ClassTallies` keeps.
        """
        tallies = ClassTallies(memory)
        names = (self.labels_regex, self.predictions_regex)
        counted = tallies.add(step, *names, argmax=self.argmax)
        most = max(tally.total for _, tally in counted)
        if most < self.samples:
            raise Missing(f"only {most} of the {self.samples} labels were saved so far")
        is_beside = self.unlike_validation and step.mode is not ModeKeys.GLOBAL
        found = []
        for labels, tally in counted:
            if tally.total >= self.samples:
                beside = tallies.of(f"EVAL/{labels.name}") if is_beside else None
                imbalance = self._imbalance(tally, labels.num_classes, beside)
                findings = enumerate((imbalance, self._misprediction(tally)))
                found += [(at, -of.value, labels.name, labels, of) for at, of in findings if of]
        if not found:
            return Passed()
        *_, labels, worst = min(found, key=lambda each: each[:3])
        return IssueFound(
            Evidence(
                step=step.step,
                mode=step.mode.name,
                worker=labels.worker,
                tensor=labels.name,
                measure=worst.measure,
                value=worst.value,
                threshold=worst.threshold,
                sentence=f"{labels.name}: {worst.message}",
                remedy=_REMEDY,
            )
        )

    def _imbalance(
        self, tally: LabelTally, num_classes: int, beside: LabelTally | None
    ) -> _Finding | None:
        """Return that a class is rare, or the only one that came; None if not."""
        limit = self.threshold_imbalance
        fewest = _ENOUGH if self.unlike_validation and beside is None else math.inf
        least, ratio, chance = rarest_class(tally, beside, limit, self.samples, fewest)
        most = int(tally.labels.argmax())
        message = f"class {tally.classes[most]} has {tally.labels[most]} labels, and "
        if len(tally.classes) == 1:
            message += f"none of the other {num_classes - 1} classes has any"
            return _Finding("imbalance", math.inf, limit, message) if num_classes > 1 else None
        counted = f", taken for {chance} more" if chance else ""
        message += f"class {tally.classes[least]} has {tally.labels[least]}{counted}, a ratio of "
        message += f"{ratio:.4g}, more than {limit:g}"
        return _Finding("imbalance", ratio, limit, message) if ratio > limit else None

    def _misprediction(self, tally: LabelTally) -> _Finding | None:
        """Return that a class is mostly predicted wrongly; None if none is."""
        shares = tally.wrong / np.maximum(tally.predicted, 1)
        at, limit = int(shares.argmax()), self.threshold_misprediction
        message = f"{tally.wrong[at]} of {tally.predicted[at]} examples of class "
        message += f"{tally.classes[at]} are predicted wrongly, a share larger than {limit:g}"
        share = float(shares[at])
        return _Finding("misprediction", share, limit, message) if share > limit else None


class _Finding(NamedTuple):
    measure: str
    value: float
    threshold: float
    message: str
