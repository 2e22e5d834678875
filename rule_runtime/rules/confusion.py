"""Confusion: classes that are mistaken for one another."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import Evidence, IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, AtMost, Memory, Rule, Unit
from rule_runtime.numerics.class_pairs import class_pairs
from rule_runtime.numerics.classification import confusion_matrix

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["Confusion"]

_MAX_CLASSES: Final = 1024

_REMEDY: Final = (
    "Look at examples of the two classes: wrong labels, classes that overlap, too few examples of "
    "one; then weigh the classes, get more data, or train on."
)


class _Violation(NamedTuple):
    """How far a share of the confusion matrix is beyond its threshold, and which it is."""

    excess: float
    worker: str
    tensor: str
    measure: str
    value: float
    threshold: float
    message: str


class Confusion(Rule):
    """Finds classes that the model mistakes for others.

    How it decides:
        At each saved step and for each worker, the labels and predictions of the step make a matrix
        C of counts, C[j][i] of class j predicted as class i. Of each predicted class i, the share
        C[i][i] / sum over j of C[j][i] must be at least `min_diag`, and for each other class j the
        share C[j][i] / sum over j of C[j][i] at most `max_off_diag`. The original prints the trace
        as the denominator of the first share, by which a perfect classifier of ten classes would
        fail; its tests of 2019 hold for the sum of the column. A class that is never predicted has
        no share and is passed over. Steps are not added up, so a step should hold many examples.
        The tensors are those named `labels` and `predictions`, or else the only tensor of
        `labels_collection` and of `predictions_collection`. Labels are classes or one-hot rows;
        predictions are classes, probabilities (0.5 and more is class 1), or a number for each
        class, of which the largest counts. Negative labels mark examples to ignore. What is neither
        classes nor probabilities, like the predictions of a regression, is not evaluated, and
        neither are more than 1,024 classes.

    Parameters:
        category_no: Number of classes; the largest class in labels and predictions, plus one, if
            not given.
        labels: Name of the tensor with the labels.
        predictions: Name of the tensor with the predictions.
        labels_collection: Collection with the labels if no tensor has that name.
        predictions_collection: Collection with the predictions likewise.
        min_diag: The smallest share of right predictions of a class that is no issue.
        max_off_diag: The largest share of one other class that is no issue.

    What to try:
        A look at the examples and their labels, weights for the classes, more data, more training.
    """

    category_no: Annotated[int | None, AtLeast(2), AtMost(_MAX_CLASSES), Unit("classes")] = None
    labels: str = "labels"
    predictions: str = "predictions"
    labels_collection: str = "labels"
    predictions_collection: str = "predictions"
    min_diag: Annotated[float, AtLeast(0), AtMost(1)] = 0.9
    max_off_diag: Annotated[float, AtLeast(0), AtMost(1)] = 0.1

    def requires(self) -> tuple[CollectionConfig, ...]:
        """Return the two collections, with the values of their tensors."""
        regexes: dict[str, list[str]] = {}
        for collection, name in (
            (self.labels_collection, self.labels),
            (self.predictions_collection, self.predictions),
        ):
            regexes.setdefault(collection, []).append(f"^{re.escape(name)}$")
        return tuple(
            CollectionConfig(
                collection,
                {
                    "include_regex": "|".join(names),
                    "save_interval": "500",
                    "save_raw_tensor": "True",
                },
            )
            for collection, names in regexes.items()
        )

    def check(self, step: StepView, memory: Memory) -> Outcome:  # noqa: ARG002
        """Compare the shares of the step's confusion matrix with the thresholds.

        Args:
            step: What was saved at the step.
            memory: Not used.
        """
        found: list[_Violation] = []
        num_judged, reason = 0, "no step was saved"
        for worker in step.workers:
            label = _tensor(step, worker, self.labels, self.labels_collection)
            prediction = _tensor(step, worker, self.predictions, self.predictions_collection)
            if label is None or prediction is None:
                what = self.labels if label is None else self.predictions
                reason = f"the tensor {what} was not saved, nor one tensor of its collection"
                continue
            values = step.values((label, prediction), worker)
            if len(values) < len({label, prediction}):
                reason = f"the values of {label} and {prediction} were not saved"
                continue
            try:
                matrix = self._matrix(values[label], values[prediction])
            except ValueError as error:
                reason = f"{label}, {prediction}: {error}"
                continue
            if not matrix.any():
                reason = f"{label} and {prediction} have no examples"
                continue
            num_judged += 1
            found += self._violations(matrix, worker, prediction)
        if found:
            # A share of another class comes first, for it names both.
            worst = min(found, key=lambda one: (one.measure, -one.excess, one.worker, one.message))
            return IssueFound(_evidence(step, worst))
        return Passed() if num_judged else NotEvaluated(reason)

    def _matrix(
        self, labels: npt.NDArray[np.generic], predictions: npt.NDArray[np.generic]
    ) -> npt.NDArray[np.int64]:
        pairs = class_pairs(labels, predictions)
        largest = int(max(pairs.labels.max(initial=0), pairs.predictions.max(initial=0)))
        limit = _MAX_CLASSES if self.category_no is None else self.category_no
        if largest >= limit:
            raise ValueError(f"the class {largest} is not among the first {limit}")
        return confusion_matrix(pairs.labels, pairs.predictions, largest + 1)

    def _violations(
        self, matrix: npt.NDArray[np.int64], worker: str, tensor: str
    ) -> list[_Violation]:
        """Return the share that is farthest below `min_diag`, and that farthest above the other."""
        totals = matrix.sum(axis=0)
        shares = matrix / np.where(totals > 0, totals, 1)
        right = np.where(totals > 0, np.diagonal(shares), np.inf)
        wrong = shares - np.diag(np.diagonal(shares))
        found = []
        of = "of those predicted as class"
        at = int(right.argmin())
        if right[at] < self.min_diag:
            message = f"{right[at]:.3g} {of} {at} are of it, less than"
            measure, limit = "min_diag", self.min_diag
            found.append(
                _Violation(limit - right[at], worker, tensor, measure, right[at], limit, message)
            )
        true, at = divmod(int(wrong.argmax()), len(wrong))
        if wrong[true, at] > self.max_off_diag:
            value, limit = wrong[true, at], self.max_off_diag
            message = f"{value:.3g} {of} {at} are of class {true}, more than"
            measure = "max_off_diag"
            found.append(_Violation(value - limit, worker, tensor, measure, value, limit, message))
        return found


def _tensor(step: StepView, worker: str, name: str, collection: str) -> str | None:
    """Return the name of a worker's tensor: the given one, or else the collection's only one."""
    rows = step.tensors()
    if (name, worker) in zip(rows.names, rows.workers, strict=True):
        return name
    rows = step.tensors(collections=(collection,))
    names = [one for one, of in zip(rows.names, rows.workers, strict=True) if of == worker]
    return names[0] if len(names) == 1 else None


def _evidence(step: StepView, violation: _Violation) -> Evidence:
    return Evidence(
        step=step.step,
        mode=step.mode.name,
        worker=violation.worker,
        tensor=violation.tensor,
        measure=violation.measure,
        value=float(violation.value),
        threshold=violation.threshold,
        sentence=f"{violation.tensor}: {violation.message} {violation.threshold:g}",
        remedy=_REMEDY,
    )
