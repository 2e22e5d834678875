"""Quality of predicted classes: confusion matrix, precision, recall, F1, ROC.

Shape legend: N = examples, K = classes, P = points of a curve.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = [
    "AVERAGES",
    "ClassScores",
    "averaged_scores",
    "class_scores",
    "confusion_matrix",
    "roc_auc",
    "roc_curve",
]

AVERAGES: Final = ("micro", "macro", "weighted")
"""Averages over examples, over classes, and over classes weighted by their number of examples."""

_MAX_CLASSES: Final = 1 << 13
"""Maximum number of classes; a larger matrix would take more than half a gigabyte."""

_NUM_CLASSES_OF_BINARY: Final = 2


def confusion_matrix(
    labels: npt.ArrayLike, predictions: npt.ArrayLike, num_classes: int | None = None
) -> npt.NDArray[np.int64]:
    """Return how many examples of each class were predicted as each class [K, K].

    Rows are the true classes, columns the predicted ones.

    Args:
        labels: True classes [N]: whole numbers from 0, of any dtype.
        predictions: Predicted classes [N].
        num_classes: K; None for the largest class found, plus one.

    Raises:
        ValueError: If the lengths differ, a class is not a whole number from 0 to K - 1, or there
            are more than 8,192 classes.
    """
    true = _classes("labels", labels)
    predicted = _classes("predictions", predictions)
    if len(true) != len(predicted):
        raise ValueError(f"there are {len(true)} labels, but {len(predicted)} predictions")
    largest = int(max(true.max(initial=-1), predicted.max(initial=-1)))
    size = largest + 1 if num_classes is None else num_classes
    if largest >= size:
        raise ValueError(f"class {largest} is not one of the {size} classes 0 to {size - 1}")
    if not 0 <= size <= _MAX_CLASSES:
        raise ValueError(f"there are {size} classes; at most {_MAX_CLASSES} are possible")
    counts = np.bincount(true * size + predicted, minlength=size * size)
    return counts.astype(np.int64).reshape(size, size)


def _classes(what: str, values: npt.ArrayLike) -> npt.NDArray[np.int64]:
    array = np.asarray(values).reshape(-1)
    if array.size == 0:
        return np.empty(0, np.int64)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"the {what} are of dtype {array.dtype}; classes are whole numbers")
    is_class = (array >= 0) & (array < np.iinfo(np.int32).max) & (array == np.floor(array))
    if not is_class.all():
        odd = array[np.flatnonzero(~is_class)[0]]
        raise ValueError(
            f"{odd!s} among the {what} is not a class; classes are whole numbers from 0"
        )
    return array.astype(np.int64)


@dataclass(frozen=True, eq=False)
class ClassScores:
    """Scores of each class; 0 if a quotient is undefined.

    Attributes:
        precision: Share of the predictions of the class that are correct [K].
        recall: Share of the examples of the class that are predicted correctly [K].
        f1: Harmonic mean of the two [K].
        support: Number of examples of the class [K].
        is_present: True for a class with a label or a prediction [K].
    """

    precision: npt.NDArray[np.float64]
    recall: npt.NDArray[np.float64]
    f1: npt.NDArray[np.float64]
    support: npt.NDArray[np.int64]
    is_present: npt.NDArray[np.bool_]


def class_scores(matrix: npt.NDArray[np.int64]) -> ClassScores:
    """Return precision, recall and F1 of each class.

    Args:
        matrix: Confusion matrix [K, K], rows the true classes.
    """
    hits = np.diagonal(matrix)
    support, predicted = matrix.sum(axis=1), matrix.sum(axis=0)
    return ClassScores(
        precision=_quotient(hits, predicted),
        recall=_quotient(hits, support),
        f1=_quotient(2 * hits, support + predicted),
        support=support,
        is_present=(support + predicted) > 0,
    )


def averaged_scores(matrix: npt.NDArray[np.int64]) -> dict[str, dict[str, float]]:
    """Return `precision`, `recall` and `f1` for each of `AVERAGES`; 0 without examples.

    Only classes with a label or a prediction count.

    Args:
        matrix: Confusion matrix [K, K], rows the true classes.
    """
    scores = class_scores(matrix)
    accuracy = float(_quotient(np.trace(matrix), matrix.sum()))
    rows = {"precision": scores.precision, "recall": scores.recall, "f1": scores.f1}
    macro, weighted = scores.is_present, scores.support
    return {
        # Each wrong example is a false positive of one class and a false negative of another, so
        # all three equal the accuracy.
        "micro": dict.fromkeys(rows, accuracy),
        "macro": {name: float(_quotient(row @ macro, macro.sum())) for name, row in rows.items()},
        "weighted": {
            name: float(_quotient(row @ weighted, weighted.sum())) for name, row in rows.items()
        },
    }


def roc_curve(
    labels: npt.ArrayLike, scores: npt.ArrayLike
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the ROC curve: false positive rates [P], true positive rates [P], thresholds [P].

    At a point, examples with at least this score are predicted as positive; the first threshold is
    infinite. Equal scores are one point (Fawcett, An introduction to ROC analysis, 2006).

    Args:
        labels: 1 for positive examples and 0 for negative ones [N].
        scores: Finite scores [N], larger for examples that are more likely positive.

    Raises:
        ValueError: If the lengths differ, a label is neither 0 nor 1, or a score is not finite.
    """
    positive = _classes("labels", labels)
    values = np.asarray(scores, np.float64).reshape(-1)
    if len(positive) != len(values):
        raise ValueError(f"there are {len(positive)} labels, but {len(values)} scores")
    if positive.max(initial=0) >= _NUM_CLASSES_OF_BINARY:
        raise ValueError(f"the label {positive.max()} is neither 0 nor 1")
    if not np.isfinite(values).all():
        raise ValueError("not all scores are finite; leave those examples out")
    order = np.argsort(-values, kind="stable")
    values, positive = values[order], positive[order]
    ends = np.flatnonzero(np.append(values[1:] != values[:-1], True)[: len(values)])
    true_positives = np.concatenate([[0], np.cumsum(positive)[ends]])
    false_positives = np.concatenate([[0], np.cumsum(1 - positive)[ends]])
    return (
        _quotient(false_positives, len(positive) - positive.sum(), otherwise=np.nan),
        _quotient(true_positives, positive.sum(), otherwise=np.nan),
        np.concatenate([[np.inf], values[ends]]),
    )


def roc_auc(
    false_positive_rates: npt.NDArray[np.float64], true_positive_rates: npt.NDArray[np.float64]
) -> float:
    """Return the area under a ROC curve, by trapezoids; NaN if there is only one class.

    Args:
        false_positive_rates: In ascending order [P].
        true_positive_rates: In ascending order [P].
    """
    heights = (true_positive_rates[1:] + true_positive_rates[:-1]) / 2
    area = float(np.diff(false_positive_rates) @ heights)
    return area if len(heights) else float("nan")


def _quotient(
    numerator: npt.ArrayLike, denominator: npt.ArrayLike, *, otherwise: float = 0.0
) -> npt.NDArray[Any]:
    top, below = np.broadcast_arrays(np.asarray(numerator, np.float64), denominator)
    quotient = np.full(top.shape, otherwise)
    np.divide(top, below, out=quotient, where=below != 0)
    return quotient
