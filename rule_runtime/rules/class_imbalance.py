"""ClassImbalance: classes with too few labels, or that are mostly predicted wrongly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import Evidence, IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import (
    AtLeast,
    AtMost,
    GreaterThan,
    Memory,
    Regex,
    Rule,
    Unit,
)
from rule_runtime.numerics.class_pairs import class_pairs, true_classes
from rule_runtime.numerics.label_tally import CHANCE, LabelTally
from rule_runtime.numerics.repeated_rows import is_repeated

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["ClassImbalance"]

_MAX_CLASSES: Final = 1024
_ENOUGH: Final = 30
_MAX_PAIRS: Final = 4
"""Pairs of labels and predictions, by mode; further ones are passed over."""

_REMEDY: Final = (
    "Weigh the classes in the loss (XGBoost: scale_pos_weight), sample the rare ones more often, "
    "or get more data of them; judge by a metric that rare classes count in."
)


class ClassImbalance(Rule):
    """Finds labels of which some classes are rare, and classes that are mostly predicted wrongly.

    How it decides:
        The labels of all saved steps and all workers are counted, those of each mode by themselves;
        from `samples` of them on it is judged at each step. Labels that a worker saved just so at
        the step before, 16 or more of several classes, are the same rows again, as the validation
        rows of boosted trees are in each round: they are not counted again, but do count for
        `samples` where predictions came with them; the rarest class of such a set of fewer rows
        counts as two rows more. The ratio is that of the largest count to the smallest of the
        classes seen. A class that never came cannot be seen; but if only one came while the
        predictions tell of more classes, the ratio is infinite. With `unlike_validation` the ratio
        is judged in mode TRAIN only, of classes that are more than three times as rare, beside the
        most frequent one, as among the labels of mode EVAL so far, two standard deviations of both
        counts apart, if all that are so are 20 % or more of those together, or one of them 5 %:
        what validation lacks as well is the nature of the task. Labels of mode GLOBAL are judged by
        themselves, and then only while the rarest class has fewer than 30: events may be rare by
        nature, but of so few nothing can be learned, nor measured (the standard error of a share of
        30 is up to 0.09). The mispredictions of a class are counted over all steps likewise.
        Strictly larger fires. The ratio comes first as evidence, for it does not depend on the
        model. Labels are the tensors that `labels_regex` finds, predictions those of
        `predictions_regex`; if there are several, they are paired in the order of their names.
        Labels are classes or one-hot rows; predictions are classes, probabilities (0.5 and more is
        class 1), or a number for each class, of which the largest counts. Negative labels mark
        examples to ignore. Labels without predictions are judged by the ratio alone; what is
        neither classes nor probabilities, like the predictions of a regression, is not evaluated.
        Counted are at most 1,024 classes and 4 pairs of tensors, by mode.

    Parameters:
        threshold_imbalance: The largest ratio of the counts of two classes that is no issue.
        threshold_misprediction: The largest share of wrong predictions of a class that is no issue.
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
        counted: dict[str, tuple[str, str, int]] = {}
        reason = f"no labels were saved, tensors named as {', '.join(self.labels_regex)}"
        for worker in step.workers:
            pairs, problem = self._pairs(step, worker)
            reason = problem or reason
            for labels, predictions in pairs:
                key = f"{step.mode.name}/{labels}"
                if key not in tallies and len(tallies) >= _MAX_PAIRS:
                    continue
                try:
                    tally, num_classes = self._count(
                        step.values({labels, predictions} - {""}, worker),
                        (labels, predictions),
                        LabelTally.read(tallies.get(key)),
                        memory.setdefault("latest", {}),
                        f"{key}/{worker}",
                    )
                except ValueError as error:
                    reason = f"{labels}: {error}"
                    continue
                tallies[key] = [column.tolist() for column in tally]
                first = counted.get(key, (labels, worker, 0))
                counted[key] = (*first[:2], max(first[2], num_classes))
        return self._judge(step, tallies, counted, reason)

    def _pairs(self, step: StepView, worker: str) -> tuple[list[tuple[str, str]], str]:
        """Return the names of labels and their predictions, "" for none; or the problem."""
        names = []
        for regex in (self.labels_regex, self.predictions_regex):
            rows = step.tensors(regex=regex)
            of_worker = zip(rows.names, rows.workers, strict=True)
            names.append(sorted(name for name, of in of_worker if of == worker))
        labels, predictions = names
        if predictions and labels and len(labels) != len(predictions):
            problem = f"{len(labels)} tensors of labels and {len(predictions)} of predictions"
            return [], f"{problem} were saved, which makes no pairs"
        predictions = predictions or [""] * len(labels)
        return list(zip(labels, predictions, strict=False))[:_MAX_PAIRS], ""

    def _count(
        self,
        values: dict[str, npt.NDArray[Any]],
        names: tuple[str, str],
        tally: LabelTally,
        latest: dict[str, int],
        key: str,
    ) -> tuple[LabelTally, int]:
        """Return a tally with the labels of one worker added, and of how many classes is known."""
        labels, predictions = names
        if labels not in values or (predictions and predictions not in values):
            raise ValueError("the values of labels and predictions were not saved")
        if predictions:
            pairs = class_pairs(values[labels], values[predictions], argmax=self.argmax)
            true, wrong = pairs.labels, pairs.labels != pairs.predictions
            num_classes = pairs.num_classes or int(pairs.predictions.max(initial=0)) + 1
        else:
            true, num_classes = true_classes(values[labels]), 0
            wrong = np.zeros(len(true), np.bool_)
        if not len(true):
            raise ValueError("there is no label")
        classes = np.unique(np.concatenate([tally.classes, true]))
        if len(classes) > _MAX_CLASSES:
            raise ValueError(f"there are more than {_MAX_CLASSES} classes")
        where, at = np.searchsorted(classes, tally.classes), np.searchsorted(classes, true)
        added = np.bincount(at, minlength=len(classes))
        is_new = not is_repeated(true, latest, key)
        of_step = (
            added * is_new,
            added * bool(predictions),
            np.bincount(at[wrong], minlength=len(classes)),
        )
        columns = []
        for before, now in zip(tally[1:], of_step, strict=True):
            column = now.astype(np.int64)
            column[where] += before
            columns.append(column)
        return LabelTally(classes, *columns), num_classes

    def _judge(
        self,
        step: StepView,
        tallies: dict[str, list[list[int]]],
        counted: dict[str, tuple[str, str, int]],
        reason: str,
    ) -> Outcome:
        found = []
        most = 0
        for key, (labels, worker, num_classes) in counted.items():
            tally = LabelTally.read(tallies[key])
            total = int(max(tally.labels.sum(), tally.predicted.sum()))
            most = max(most, total)
            if total >= self.samples:
                beside = self._beside(step, tallies.get(f"EVAL/{labels}"))
                found += [
                    (rank, -value, labels, measure, value, threshold, message, worker)
                    for rank, measure, value, threshold, message in self._findings(
                        tally, num_classes, beside
                    )
                ]
        if found:
            _, _, labels, measure, value, threshold, message, worker = min(found)
            return IssueFound(
                Evidence(
                    step=step.step,
                    mode=step.mode.name,
                    worker=worker,
                    tensor=labels,
                    measure=measure,
                    value=value,
                    threshold=threshold,
                    sentence=f"{labels}: {message}",
                    remedy=_REMEDY,
                )
            )
        if not counted:
            return NotEvaluated(reason)
        if most < self.samples:
            return NotEvaluated(f"only {most} of the {self.samples} labels were saved so far")
        return Passed()

    def _beside(self, step: StepView, of_validation: list[list[int]] | None) -> LabelTally | None:
        """Return the tally that one of training is compared with; None to take it as it is."""
        if not self.unlike_validation or step.mode.name == "GLOBAL":
            return None
        return LabelTally.read(of_validation)

    def _findings(
        self, tally: LabelTally, num_classes: int, beside: LabelTally | None
    ) -> list[tuple[int, str, float, float, str]]:
        """Return rank, measure, value, threshold and words of what is wrong."""
        found = []
        is_alone = len(tally.classes) == 1 and num_classes > 1
        most, labels = int(tally.labels.argmax()), tally.labels
        if beside is not None and not is_alone:
            is_harmful = tally.lacks(beside, self.threshold_imbalance)
            labels = np.where(tally.rarer_than(beside) & is_harmful, labels, labels[most])
        elif self.unlike_validation and labels.min() >= _ENOUGH:
            labels = np.full_like(labels, labels[most])
        least = int(labels.argmin())
        # A row or two more or less in the rarest class of a small set is chance.
        chance = CHANCE if tally.labels.sum() < self.samples else 0
        ratio = np.inf if is_alone else labels[most] / (labels[least] + chance)
        if ratio > self.threshold_imbalance:
            counted = f", taken for {CHANCE} more" if chance else ""
            few = (
                f"none of the other {num_classes - 1} classes has any"
                if is_alone
                else f"class {tally.classes[least]} has {tally.labels[least]}{counted}, a ratio of "
                f"{ratio:.4g}, more than {self.threshold_imbalance:g}"
            )
            message = f"class {tally.classes[most]} has {tally.labels[most]} labels, and {few}"
            found.append((0, "imbalance", float(ratio), self.threshold_imbalance, message))
        shares = tally.wrong / np.maximum(tally.predicted, 1)
        at = int(shares.argmax())
        if shares[at] > self.threshold_misprediction:
            message = (
                f"{tally.wrong[at]} of {tally.predicted[at]} examples of class {tally.classes[at]} "
                f"are predicted wrongly, a share larger than {self.threshold_misprediction:g}"
            )
            limit = self.threshold_misprediction
            found.append((1, "misprediction", float(shares[at]), limit, message))
        return found
