"""Targets of a loss, and the loss of the best constant predictor for them."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from rule_runtime.facts.losses import RELATIVE_ERROR, Losses, LossKind, size_of_error
from rule_runtime.numerics.loss_pair import constant_predictor_loss
from rule_runtime.trial.step_view import StepView

__all__ = ["LossTargets", "constant_loss", "labels_of_trees", "targets_of"]

_METRICS: Final = {
    "rmse": LossKind.DISTANCES,
    "mae": LossKind.DISTANCES,
    "logloss": LossKind.BINARY,
    "mlogloss": LossKind.CLASSES,
}
"""Metrics of XGBoost that are compared with a constant predictor."""

_BALANCED: Final = 0.3
"""Smallest share of the rarer of two classes: with rarer classes, losses often have weights."""


class LossTargets(NamedTuple):
    """Targets of a loss at one or more steps.

    Attributes:
        kind: Value of its `LossKind`.
        rows: Number of rows; for class labels, the number of labels.
        square: Mean square of the elements.
        uniform: Loss of equal probabilities for all classes, nats; 0 for other losses.
        exact: Loss of the best constant predictor, computed from values; 0 if unknown.
        is_sum: Whether the loss is known to be a sum over rows instead of a mean.
    """

    kind: str
    steps: int
    rows: float
    mean: float
    square: float
    uniform: float = 0.0
    exact: float = 0.0
    is_sum: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether the name shows that the loss is a mean without row weights."""
        kind = LossKind(self.kind)
        return kind.is_of_numbers or kind is LossKind.CLASSES

    def plus(self, other: LossTargets) -> LossTargets:
        """Return the targets of both together."""
        steps = self.steps + other.steps
        share = other.steps / steps
        return other._replace(
            steps=steps,
            rows=self.rows + other.rows,
            mean=self.mean + share * (other.mean - self.mean),
            square=self.square + share * (other.square - self.square),
            exact=0.0,  # batches may be sorted: constants per batch fit better than one
            is_sum=self.is_sum or other.is_sum,
        )


def targets_of(
    step: StepView, name: str, worker: str, loss: float, *, with_values: bool = False
) -> LossTargets | None:
    """Return the targets of a loss; None if they were not saved or are not finite.

    With `with_values`, it includes the loss of the best constant predictor.
    """
    losses = step.fact(Losses)
    of = losses.find(name, worker)
    kind, targets = of.kind, of.targets
    if targets is None or not math.isfinite(targets.mean_square):
        return None
    of_classes = kind.is_of_classes or kind is LossKind.BINARY
    uniform = of.zero_output_loss if of_classes else 0.0
    is_each = kind.is_of_classes and targets.dtype.startswith("int")
    values = losses.values(of) if with_values else None
    return LossTargets(
        kind=kind.value,
        steps=1,
        rows=targets.size if is_each or not targets.shape else targets.shape[0],
        mean=targets.mean,
        square=targets.mean_square,
        uniform=uniform if math.isfinite(uniform) else 0.0,
        exact=0.0 if values is None else constant_predictor_loss(*values, loss),
        is_sum=loss > of.largest_mean,
    )


def labels_of_trees(step: StepView, metric: str, worker: str) -> LossTargets | None:
    """Return the labels for a metric such as `validation-rmse`; None if unknown."""
    kind = _METRICS.get(metric.rpartition("-")[2])
    labels = step.tensors(regex=("^labels$",))
    if kind is None or worker not in labels.workers:
        return None
    at = labels.workers.index(worker)
    size, mean, std, high = (float(labels.column(of)[at]) for of in ("size", "mean", "std", "max"))
    if not math.isfinite(mean * mean + std * std):
        return None
    uniform = math.log(max(high + 1, 2)) if kind is LossKind.CLASSES else 0.0
    return LossTargets(kind.value, 1, size, mean, mean * mean + std * std, uniform)


def constant_loss(name: str, targets: LossTargets) -> float:
    """Return the loss of the best constant predictor; 0 if it is unknown.

    For numbers, it is the variance or its root. For classes, it is ln(number of classes), an upper
    bound of their entropy. For two about equally frequent classes, it is their entropy.
    """
    kind = LossKind(targets.kind)
    if targets.is_sum:
        return 0.0
    if targets.exact:
        return targets.exact
    if kind.is_of_numbers:
        variance = targets.square - targets.mean**2
        is_known = variance > RELATIVE_ERROR * targets.square
        return size_of_error(kind, name, variance) if is_known else 0.0
    if kind is LossKind.BINARY:
        share = targets.mean
        is_bit = math.isclose(targets.square, share, rel_tol=RELATIVE_ERROR)
        if not is_bit or not _BALANCED <= share <= 1 - _BALANCED:
            return 0.0
        return -share * math.log(share) - (1 - share) * math.log(1 - share)
    return targets.uniform
