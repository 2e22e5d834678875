"""Confusion: detects classes that a model mistakes for each other."""

from __future__ import annotations

import re
from typing import Annotated

import numpy as np
import numpy.typing as npt

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.findings import issue
from rule_runtime.engine.outcome import Missing, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, AtMost, Memory, Rule, Unit
from rule_runtime.facts.class_labels import MAX_CLASSES
from rule_runtime.numerics.class_pairs import class_pairs
from rule_runtime.trial.step_view import StepView

__all__ = ["Confusion"]

_Violation = tuple[str, float, float, float, str]
"""Measure, sort key, value, threshold, message: the smallest is the worst."""


class Confusion(Rule):
    """Detects classes that a model mistakes for each other.

    How it decides:
        The rule makes a confusion matrix of each saved step. For each predicted class, the share of
        right predictions must be at least `min_diag`. The share of each other class must be at most
        `max_off_diag`.

    Parameters:
        category_no: Number of classes; by default the largest class found, plus one.
        labels: Name of the tensor with the labels.
        predictions: Name of the tensor with the predictions.
        labels_collection: Collection with them as its only tensor, if `labels` does not exist.
        predictions_collection: The same for `predictions`.
        min_diag: Smallest share of right predictions of a class that passes.
        max_off_diag: Largest share of one other class that passes.

    What to try:
        Look at examples of the two classes: labels may be wrong, or too few. Weight the classes,
        collect more data, or train longer.
    """

    category_no: Annotated[int | None, AtLeast(2), AtMost(MAX_CLASSES), Unit("classes")] = None
    labels: str = "labels"
    predictions: str = "predictions"
    labels_collection: str = "labels"
    predictions_collection: str = "predictions"
    min_diag: Annotated[float, AtLeast(0), AtMost(1)] = 0.9
    max_off_diag: Annotated[float, AtLeast(0), AtMost(1)] = 0.1

    def requires(self) -> tuple[CollectionConfig, ...]:
        """Return the two collections, with the values of their tensors."""
        saved = {"save_interval": "500", "save_raw_tensor": "True"}
        return tuple(
            CollectionConfig(collection, {"include_regex": f"^{re.escape(name)}$", **saved})
            for collection, name in (
                (self.labels_collection, self.labels),
                (self.predictions_collection, self.predictions),
            )
        )

    def check(self, step: StepView, memory: Memory) -> Outcome:  # noqa: ARG002
        """Compare the shares of the step's confusion matrix with the thresholds."""
        matrices = {worker: of for worker in step.workers if (of := self._matrix(step, worker))}
        if not matrices:
            reason = f"the values of {self.labels} and {self.predictions} were not saved"
            others = step.tensors(collections=(self.labels_collection, self.predictions_collection))
            raise Missing(reason, step.how_to_save((self.labels, self.predictions, *others.names)))
        if not any(matrix.any() for _, matrix in matrices.values()):
            raise Missing("labels and predictions are empty")
        found = [
            (*violation, worker)
            for worker, (_, matrix) in matrices.items()
            for violation in self._violations(matrix)
        ]
        if not found:
            return Passed()
        measure, _, value, threshold, message, worker = min(found)
        message, tensor = f"{value:.3g} of the predictions of class {message}", matrices[worker][0]
        return issue(step, (tensor, worker), (measure, value, threshold), message, self)

    def _matrix(self, step: StepView, worker: str) -> tuple[str, npt.NDArray[np.int64]] | None:
        """Return the name of predictions, and counts [K, K] of true by predicted class."""
        label = _existing_name(step, worker, self.labels, self.labels_collection)
        predicted = _existing_name(step, worker, self.predictions, self.predictions_collection)
        values = step.values((label, predicted), worker)
        if values.keys() != {label, predicted}:
            return None
        try:
            pairs = class_pairs(values[label], values[predicted])
        except ValueError as error:
            raise Missing(str(error)) from error
        size = 1 + int(max(pairs.labels.max(initial=0), pairs.predictions.max(initial=0)))
        if size > (limit := self.category_no or MAX_CLASSES):
            raise Missing(f"class {size - 1} exceeds the {limit} classes", "set category_no")
        counts = np.bincount(pairs.labels * size + pairs.predictions, minlength=size * size)
        return predicted, counts.reshape(size, size)

    def _violations(self, matrix: npt.NDArray[np.int64]) -> list[_Violation]:
        """Return the smallest share of correct predictions, and the largest of another class."""
        totals = matrix.sum(axis=0)
        shares = matrix / np.where(totals > 0, totals, 1)
        right = np.where(totals > 0, np.diagonal(shares), np.inf)
        wrong = shares - np.diag(np.diagonal(shares))
        right_class, (true, other) = int(right.argmin()), divmod(int(wrong.argmax()), len(wrong))
        found = []
        if (share := float(right[right_class])) < (limit := self.min_diag):
            message = f"{right_class} are right, less than {limit:g}"
            found.append(("min_diag", share - limit, share, limit, message))
        if (share := float(wrong[true, other])) > (limit := self.max_off_diag):
            message = f"{other} are of class {true}, more than {limit:g}"
            found.append(("max_off_diag", limit - share, share, limit, message))
        return found


def _existing_name(step: StepView, worker: str, name: str, collection: str) -> str:
    """Return a name, or the only tensor of a collection if the worker saved none of this name."""
    if (name, worker) in step.tensors().pairs:
        return name
    rows = step.tensors(collections=(collection,))
    names = [one for one, of in rows.pairs if of == worker]
    return names[0] if len(names) == 1 else name
