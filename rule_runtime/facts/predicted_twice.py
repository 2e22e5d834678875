"""Probabilities that a model predicts, and of which its loss takes the softmax again, by values.

Keras's `loss` is the mean since the epoch began: only at its first step is it that of the batch.

Shape legend: B = rows of a batch, C = classes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.engine.outcome import IssueFound, Outcome, Passed
from rule_runtime.engine.rule import Memory
from rule_runtime.facts.selection import evidence, finite_means

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["softmax_of_predictions"]

_PREDICTIONS: Final = "predictions"
_LABELS: Final = "labels"
_LOSS: Final = "loss"
_MOST_WORKERS: Final = 32
_MOST_ELEMENTS: Final = 1 << 18
_TIMES: Final = 2
_ROUNDING: Final = 1e-5
_CLOSE: Final = 1e-3
_MATRIX: Final = 2


def softmax_of_predictions(step: StepView, memory: Memory, remedy: str) -> Outcome | None:
    """Judge whether a loss is the cross entropy of the softmax of probabilities.

    Args:
        step: A step of training.
        memory: `predicted`: of each of at most 32 workers at how many steps it was, 2 at most, and
            0 for good if it was not at the first step, where it would have to be.
        remedy: What to try first.

    Returns:
        What is found; None where nothing could be compared.
    """
    losses = step.tensors(collections=("losses",))
    pairs = zip(losses.names, losses.workers, finite_means(losses).tolist(), strict=True)
    known = {worker: loss for name, worker, loss in pairs if name == _LOSS}
    rows = step.tensors(regex=(f"^{_PREDICTIONS}$",)) if known else losses
    counts: dict[str, int] = memory.setdefault("predicted", {})
    outcome: Outcome | None = None
    for at, worker in enumerate(rows.workers if known else ()):
        if worker not in counts and len(counts) >= _MOST_WORKERS:
            continue
        values = step.values((_PREDICTIONS, _LABELS), worker)
        if len(values) < _MATRIX:
            continue
        is_twice = _is_twice(values[_PREDICTIONS], values[_LABELS], known.get(worker, math.nan))
        if is_twice is None:
            continue
        outcome = outcome or Passed()
        if worker not in counts:
            counts[worker] = int(is_twice)
        elif counts[worker] and is_twice:
            counts[worker] = _TIMES
        if not is_twice or counts[worker] < _TIMES or isinstance(outcome, IssueFound):
            continue
        outcome = IssueFound(
            evidence(
                step,
                rows,
                at,
                measure="minimum",
                value=float(rows.column("min")[at]),
                threshold=0.0,
                message="has probabilities, and the loss is exactly what a softmax of these gives",
                remedy=remedy,
            )
        )
    return outcome


def _is_twice(predicted: npt.NDArray[Any], labels: npt.NDArray[Any], loss: float) -> bool | None:
    """Return whether a loss is a cross entropy of probabilities [B, C] as scores, and not as such.

    Returns:
        None if they are no probabilities, or their labels [B] or [B, C] no classes.
    """
    if predicted.ndim != _MATRIX or not 0 < predicted.size <= _MOST_ELEMENTS:
        return None
    p = predicted.astype(np.float64)
    classes = _classes(labels, p.shape)
    is_known = classes is not None and p.shape[1] >= _MATRIX and math.isfinite(loss)
    if classes is None or not is_known or not p.min() >= 0:
        return None
    if not np.allclose(p.sum(axis=1), 1, rtol=0, atol=_CLOSE):
        return None
    own = p[np.arange(len(p)), classes]
    twice = float((np.log(np.exp(p).sum(axis=1)) - own).mean())
    with np.errstate(divide="ignore"):
        once = -float(np.log(own).mean())
    is_near = math.isclose(twice, loss, rel_tol=_ROUNDING)
    return is_near and not math.isclose(once, loss, rel_tol=_CLOSE)


def _classes(labels: npt.NDArray[Any], shape: tuple[int, ...]) -> npt.NDArray[np.int64] | None:
    """Return numbers of classes [B] of labels, or of rows with a single 1; None if they are not."""
    if labels.dtype.kind not in "biuf" or not np.isfinite(labels).all():
        return None
    if labels.shape == shape:
        is_one_hot = np.isin(labels, (0, 1)).all() and (labels.sum(axis=1) == 1).all()
        return labels.argmax(axis=1) if is_one_hot else None
    if labels.size != shape[0] or labels.min() < 0 or labels.max() >= shape[1]:
        return None
    numbers = labels.reshape(-1).astype(np.int64)
    return numbers if np.array_equal(numbers, labels.reshape(-1)) else None
