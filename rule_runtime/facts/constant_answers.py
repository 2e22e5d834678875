"""What the best single answer for all rows gives, and whether validation is better than that."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from hook_layer.format.modes import ModeKeys
from rule_runtime.facts.loss_inputs import Input, LossInputs, LossKind, size_of_error
from rule_runtime.facts.loss_values import outputs_and_targets
from rule_runtime.numerics.class_pairs import true_classes
from rule_runtime.numerics.recomputed_loss import best_constant, best_shares, entropy_of_counts
from rule_runtime.numerics.series_memory import MAX_SERIES

if TYPE_CHECKING:
    from rule_runtime.facts.validation_rule import Training, Validation
    from rule_runtime.trial.step_view import StepView

__all__ = [
    "constant_answer",
    "constants_of_labels",
    "constants_of_pass",
    "constants_of_targets",
]

_WHOLE: Final = ("int", "uint")
_LIKE_GUESSING: Final = (0.8, 2.0)
_EVEN: Final = (0.3, 0.7)
_LIKE_EVEN: Final = (0.85, 1.25)
_FEWEST_ROWS: Final = 50
_TWO: Final = 2
_OUTLIER: Final = 0.1
_DEVIATIONS: Final = 5.0
_ROUNDING: Final = 1e-6
_MANY_CLASSES: Final = 0.75


def constants_of_targets(
    step: StepView, inputs: LossInputs, name: str, worker: str, loss: float
) -> dict[str, float]:
    """Return what the best answer for all rows of a step gives, under names with that of the loss.

    Known are the variance of numbers, or its root, unless one row, five standard deviations
    away or more, has a tenth of it: outliers say nothing of a model; and ln(number of classes).
    Where values were saved it is known exactly, also of losses of other names that `best_constant`
    or `best_shares` knows again, and so is whether a cross entropy is plain, without weights, or a
    sum over the rows.

    Args:
        step: The step.
        inputs: The inputs of its losses.
        name: Name of the loss.
        worker: The worker.
        loss: The loss.
    """
    kind, targets = inputs.kind(name, worker), inputs.of(name, worker, 1)
    if targets is None:
        return {}
    values = outputs_and_targets(step, name, worker)
    if values is not None:
        entropy = best_shares(*values, loss)
        if entropy is not None:
            plain = {f"plain/{name}": 1.0, f"exact/{name}": entropy}
            return plain | _of_numbers_of_classes(inputs, name, worker)
        if best_shares(*values, loss / max(targets.size, 1)) is not None:
            return {f"summed/{name}": 1.0}
    if kind.is_of_numbers or kind is LossKind.UNKNOWN:
        has_outlier = _has_outlier(targets)
        exact = None
        if values is not None and not has_outlier and values[1].dtype.kind == "f":
            exact = best_constant(*values, loss)
        found = {} if exact is None else {f"exact/{name}": exact}
        if kind is LossKind.UNKNOWN:
            return found
        spread = size_of_error(kind, name, targets.std * targets.std)
        found[f"constant/{name}"] = spread if 0 < spread < math.inf and not has_outlier else 0.0
        if exact is not None and values is not None and len(values[1]) >= _FEWEST_ROWS:
            # By so much the variance of a longer pass, of all its numbers, is too large.
            found[f"columns/{name}"] = min(exact / spread, 1.0) if spread > 0 else 1.0
        return found | {f"outlier/{name}": float(has_outlier)}
    return _of_numbers_of_classes(inputs, name, worker)


def _of_numbers_of_classes(inputs: LossInputs, name: str, worker: str) -> dict[str, float]:
    kind, targets = inputs.kind(name, worker), inputs.of(name, worker, 1)
    if targets is None or not kind.is_of_classes or not targets.dtype.startswith(_WHOLE):
        return {}
    guess = inputs.guess(name, worker)
    place = "constant" if kind is LossKind.CLASSES else "perhaps"
    return {f"{place}/{name}": guess} if math.isfinite(guess) else {}


def constants_of_pass(step: StepView, passed: dict[str, list[float]]) -> dict[str, float]:
    """Return what the best answer for all rows of a pass so far gives, under names of losses.

    It is the variance of the targets of all its steps together, or its root; each step counts
    alike, as in the mean of their losses. It is 0 once a step has an outlier. Of two classes it is
    the entropy of their shares, 0 unless there are 50 rows or more, and 30 % or more of each class.
    Beside it stands how many steps it is of: targets may have been saved of some only, and a few
    tell nothing of a pass in the order of its targets.

    Args:
        step: A step of the pass.
        passed: Changed in place: of at most 32 losses how many steps there were, how many with an
            outlier, the sums of means and mean squares of their targets, and their number.
    """
    inputs = step.fact(LossInputs)
    rows = step.tensors(collections=("losses",))
    found = {}
    for name, worker in sorted(zip(rows.names, rows.workers, strict=True))[:MAX_SERIES]:
        kind, targets = inputs.kind(name, worker), inputs.of(name, worker, 1)
        if targets is None or not math.isfinite(targets.mean_square):
            continue
        is_pair = inputs.num_classes(name, worker) == _TWO and _is_zero_or_one(targets)
        if not (kind.is_of_numbers or kind is LossKind.BINARY or is_pair):
            continue
        outliers = float(kind.is_of_numbers and _has_outlier(targets))
        added = (1.0, outliers, targets.mean, targets.mean_square, targets.size)
        before = passed.get(f"{worker}/{name}", [0.0] * len(added))
        sums = [a + b for a, b in zip(before, added, strict=True)]
        passed[f"{worker}/{name}"] = sums
        count, num_outliers, mean, square, rows_so_far = sums
        found[f"steps/{name}"] = count
        if not kind.is_of_numbers:
            place = "even" if kind is LossKind.BINARY else "pair"
            found[f"{place}/{name}"] = _of_two_classes(mean / count, rows_so_far)
            continue
        variance = square / count - (mean / count) ** 2
        is_known = not num_outliers and variance > _ROUNDING * square / count
        found[f"pass/{name}"] = size_of_error(kind, name, variance) if is_known else 0.0
    return found


def constants_of_labels(step: StepView) -> dict[str, float]:
    """Return what the best answer gives by the metrics of boosted trees, whose labels were saved.

    Args:
        step: A step of no mode.
    """
    if step.mode is not ModeKeys.GLOBAL or not step.workers:
        return {}
    labels = step.values(("labels",), step.workers[0]).get("labels")
    if labels is None or labels.dtype.kind not in "biuf" or labels.size < _FEWEST_ROWS:
        return {}
    numbers = labels.astype(np.float64).reshape(-1)
    if not np.isfinite(numbers).all():
        return {}
    found = _of_classes(numbers)
    squares = (numbers - numbers.mean()) ** 2
    if 0 < squares.max() < max(_OUTLIER * squares.sum(), _DEVIATIONS**2 * squares.mean()):
        found["labels/rmse"] = float(np.sqrt(squares.mean()))
        found["labels/mae"] = float(np.abs(numbers - np.median(numbers)).mean())
    return found


def constant_answer(validation: Validation, training: Training) -> float:
    """Return the loss of the best answer for all rows; 0 if it is not known.

    Of a cross entropy of yes and no, and of losses that only look like those of classes, it is
    known only if it is plain, or training began near to guessing: else rows or classes may have
    weights. Of a pass of one step it is known exactly, if its first one had values.

    Args:
        validation: The loss of validation.
        training: The losses of training.
    """
    beside, name = validation.beside, validation.name
    if validation.of_trees:
        return beside.get(f"labels/{name.partition('-')[2]}", 0.0)
    if f"sum/{name}" in beside:
        return 0.0
    is_told = beside.get(f"steps/{name}") == validation.num_steps
    of_classes = _of_frequencies(validation, training, is_told=is_told)
    if of_classes is not None:
        return of_classes
    if validation.num_steps > 1 and is_told and f"pass/{name}" in beside:
        return beside[f"pass/{name}"] * beside.get(f"columns/{name}", 1.0)
    is_whole = f"guess/{name}" in beside or validation.num_steps == 1
    known = beside.get(f"constant/{name}", 0.0)
    if not beside.get(f"outlier/{name}"):
        known = beside.get(f"exact/{name}", 0.0) or known  # rows may be too few for it
    return known if is_whole else 0.0


def _of_frequencies(validation: Validation, training: Training, *, is_told: bool) -> float | None:
    """Return what frequencies of classes give, 0 if it is not known; None of other losses."""
    beside, name = validation.beside, validation.name
    exact, pair, even, perhaps = (
        beside.get(f"{place}/{name}", 0.0) for place in ("exact", "pair", "even", "perhaps")
    )
    is_plain = f"plain/{name}" in beside
    if is_plain and validation.num_steps == 1 and exact:
        return exact
    if is_plain and is_told and pair:
        return pair
    if not (even or perhaps):
        return None
    guess, (low, high) = (math.log(2), _LIKE_EVEN) if even else (perhaps, _LIKE_GUESSING)
    is_known = low * guess <= training.start <= high * guess
    if even:
        is_known = is_told and (is_plain or is_known)
    return (even or perhaps) if is_known else 0.0


def _of_classes(numbers: npt.NDArray[np.float64]) -> dict[str, float]:
    """Return the entropies of labels that are classes, none of them too frequent."""
    try:
        classes = true_classes(numbers)
    except ValueError:
        return {}
    if len(classes) != len(numbers):
        return {}
    shares = np.unique(classes, return_counts=True)[1] / len(classes)
    entropy = _of_shares(shares)
    found: dict[str, float] = {}
    if len(shares) > 1 and entropy >= _MANY_CLASSES * math.log(len(shares)):
        found["labels/mlogloss"] = entropy
    if len(shares) == 2 and classes.max() == 1 and shares.min() >= _EVEN[0]:  # noqa: PLR2004
        found["labels/logloss"] = entropy
    return found


def _of_shares(shares: npt.NDArray[Any]) -> float:
    return -float((shares * np.log(shares)).sum())


def _of_two_classes(share: float, rows: float) -> float:
    """Return the entropy of two classes, 0 if one of them is rare, or rows are few."""
    if rows < _FEWEST_ROWS or not _EVEN[0] <= share <= _EVEN[1]:
        return 0.0
    return entropy_of_counts(rows * np.array([share, 1 - share]))


def _is_zero_or_one(targets: Input) -> bool:
    return math.isclose(targets.mean_square, targets.mean, rel_tol=_ROUNDING, abs_tol=_ROUNDING)


def _has_outlier(targets: Input) -> bool:
    """Return whether one element has a tenth or more of the variance, and is not one of a few."""
    far = max(targets.high - targets.mean, targets.mean - targets.low)
    is_far = far >= _DEVIATIONS * targets.std > 0
    return bool(is_far and far * far >= _OUTLIER * targets.size * targets.std * targets.std)
