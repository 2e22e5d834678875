"""ClassImbalance: classes with too few labels, or that are mostly predicted wrongly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import numpy as np

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import Evidence, IssueFound, Missing, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, AtMost, GreaterThan, Memory, Regex, Rule, Unit
from rule_runtime.facts.class_labels import ClassLabels, class_labels
from rule_runtime.numerics.label_tally import CHANCE, LabelTally
from rule_runtime.numerics.repeated_rows import is_repeated

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["ClassImbalance"]

_MAX_CLASSES: Final = 1024
"""Classes of a tensor that are counted; labels with more are no classes."""

_MAX_TALLIES: Final = 4
"""Tensors of labels that are counted, by mode."""

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
        fewer than 30 labels. Labels are class numbers or one-hot rows.

    Parameters:
        threshold_imbalance: Largest ratio of the counts of two classes.
        threshold_misprediction: Largest share of wrong predictions of a class.
        samples: Labels that must have been counted.
        unlike_validation: True to compare the ratios of training with those of validation.
        argmax: True to take the largest number along the last axis of the predictions as the class
            even if labels have the same shape and are not one-hot.
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
            memory: `tallies` of at most 4 tensors of labels, with 1,024 classes at most in each;
                `latest`, a number that stands for the latest labels, of at most 256 workers.
        """
        tallies: dict[str, list[list[int]]] = memory.setdefault("tallies", {})
        latest: dict[str, int] = memory.setdefault("latest", {})
        names = (self.labels_regex, self.predictions_regex)
        found, reason = class_labels(step, *names, argmax=self.argmax)
        counted: dict[str, ClassLabels] = {}
        for labels in found:
            key = f"{step.mode.name}/{labels.name}"
            if key not in tallies and len(tallies) >= _MAX_TALLIES:
                continue
            is_new = not is_repeated(labels.classes, latest, f"{key}/{labels.worker}")
            tally = LabelTally.read(tallies.get(key))
            tally = tally.plus(labels.classes, labels.is_wrong, is_new=is_new)
            if len(tally.classes) > _MAX_CLASSES:
                reason = f"{labels.name}: there are more than {_MAX_CLASSES} classes"
                continue
            tallies[key] = [column.tolist() for column in tally]
            counted.setdefault(key, labels)
        if not counted:
            raise Missing(reason)
        most = max(LabelTally.read(tallies[key]).total for key in counted)
        if most < self.samples:
            raise Missing(f"only {most} of the {self.samples} labels were saved so far")
        return self._judge(step, tallies, counted)

    def _judge(
        self,
        step: StepView,
        tallies: dict[str, list[list[int]]],
        counted: dict[str, ClassLabels],
    ) -> Outcome:
        """Return the worst finding: an imbalance first, as it does not depend on the model."""
        found = []
        for key, labels in counted.items():
            tally = LabelTally.read(tallies[key])
            if tally.total < self.samples:
                continue
            beside = None
            if self.unlike_validation and step.mode.name != "GLOBAL":
                beside = LabelTally.read(tallies.get(f"EVAL/{labels.name}"))
            imbalance = self._imbalance(tally, labels.num_classes, beside)
            findings = [imbalance, self._misprediction(tally)]
            found += [(at, -f.value, labels, f) for at, f in enumerate(findings) if f is not None]
        if not found:
            return Passed()
        _, _, labels, worst = min(found, key=lambda each: (*each[:2], each[2].name))
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
        most, limit = int(tally.labels.argmax()), self.threshold_imbalance
        message = f"class {tally.classes[most]} has {tally.labels[most]} labels, and "
        if len(tally.classes) == 1:
            message += f"none of the other {num_classes - 1} classes has any"
            return _Finding("imbalance", np.inf, limit, message) if num_classes > 1 else None
        may_be_rare = np.ones(len(tally.classes), np.bool_)
        if beside is not None:
            may_be_rare = tally.rarer_than(beside) & tally.lacks(beside, limit)
        elif self.unlike_validation:
            may_be_rare &= bool(tally.labels.min() < _ENOUGH)
        least = int(np.where(may_be_rare, tally.labels, tally.labels[most]).argmin())
        # In a small set a row or two more or less of a class are chance.
        chance = CHANCE if tally.labels.sum() < self.samples else 0
        ratio = float(tally.labels[most] / (tally.labels[least] + chance))
        counted = f", taken for {CHANCE} more" if chance else ""
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
