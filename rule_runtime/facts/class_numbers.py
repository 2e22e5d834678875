"""Numbers of classes that a loss takes for amounts, as a squared distance to them does."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from rule_runtime.engine.rule import Memory
from rule_runtime.facts.loss_inputs import Input, LossInputs, LossKind
from rule_runtime.facts.loss_mismatch import LossMismatch
from rule_runtime.facts.loss_values import outputs_and_targets
from rule_runtime.numerics.class_pairs import true_classes
from rule_runtime.numerics.repeated_rows import is_repeated

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["ClassNumbers", "of_every_score"]

_NO_DISTANCE: Final = re.compile(
    r"^(CrossEntropy|NLL|BCE|KLDiv|CTC|Poisson|Gaussian|Hinge|Multi|Margin|Cosine|Triplet)"
)
_TARGETS: Final = r"^(MSE|L1|SmoothL1|Huber)?Loss_input_1$"
_AMOUNTS: Final = re.compile(_TARGETS)
_DISTANCES_OF_TREES: Final = re.compile(r"^train-(rmse|mae|mphe|rmsle)$")
_MAX_TENSORS: Final = 4
_FEWEST_CLASSES: Final = 3
_MOST_CLASSES: Final = 32
_BALANCED: Final = 3.0
_WITH_NAMES: Final = ("CrossEntropy", "NLL")
_MATRIX: Final = 2
_CLOSE: Final = 1e-4
_MOST_COLUMNS: Final = 8
"""Of places, as of pixels; a text has more."""


class ClassNumbers:
    """Labels, and targets of distances, counted from step to step.

    Args:
        memory: `labels`, how often each of at most 32 classes came in at most 4 tensors of labels
            or targets, None if they are no classes; `latest`, a number that stands for the latest
            of each.
        samples: Labels that must have been seen before they are taken for classes.
    """

    def __init__(self, memory: Memory, samples: int) -> None:
        self._tallies: dict[str, list[int] | None] = memory.setdefault("labels", {})
        self._latest: dict[str, int] = memory.setdefault("latest", {})
        self._samples = samples
        self._found: dict[str, _Labels] = {}

    @property
    def are_known(self) -> bool:
        """Whether labels of the step look like classes."""
        return bool(self._found)

    def add(self, step: StepView, labels_regex: tuple[str, ...]) -> None:
        """Add the labels of a step.

        Args:
            step: The step.
            labels_regex: Regular expressions of tensors that are labels.
        """
        rows = step.tensors(regex=(*labels_regex, _TARGETS))
        for at in sorted(range(len(rows)), key=lambda at: (rows.workers[at], rows.names[at])):
            worker, name = rows.workers[at], rows.names[at]
            key = f"{worker}/{name}"
            if key not in self._tallies and len(self._tallies) >= _MAX_TENSORS:
                continue
            tally = self._tallies.setdefault(key, [0] * _MOST_CLASSES)
            values = step.values((name,), worker).get(name) if tally is not None else None
            if values is None or tally is None:
                continue
            if not is_repeated(values, self._latest, key):
                self._tallies[key] = tally = _added(tally, values)
            if tally is not None and not _AMOUNTS.match(name) and self._are_classes(tally):
                columns = [float(rows.column(of)[at]) for of in ("size", "min", "max", "mean")]
                self._found[worker] = _Labels(sum(n > 0 for n in tally), columns)

    def mismatch_of(self, inputs: LossInputs, name: str, worker: str) -> LossMismatch | None:
        """Return what is wrong if a loss compares single numbers with numbers of classes.

        Args:
            inputs: The inputs of the losses of the step.
            name: Name of the loss.
            worker: The worker.
        """
        return self._of_labels(inputs, name, worker) or self._of_targets(inputs, name, worker)

    def _of_labels(self, inputs: LossInputs, name: str, worker: str) -> LossMismatch | None:
        """Return what is wrong if the targets are the labels."""
        labels = self._found.get(worker)
        if labels is None:
            return None
        outputs, targets = inputs.of(name, worker, 0), inputs.of(name, worker, 1)
        if outputs is None or targets is None:
            is_distance = _DISTANCES_OF_TREES.match(name) is not None
        else:
            is_distance = not _NO_DISTANCE.match(name) and labels.are(targets)
            is_distance &= outputs.size == targets.size
        if not is_distance:
            return None
        message = f"is a distance to labels that look like numbers of {labels.num_classes} classes"
        return LossMismatch("classes", labels.num_classes, 2.0, message)

    def _of_targets(self, inputs: LossInputs, name: str, worker: str) -> LossMismatch | None:
        """Return what is wrong if the targets of a distance are numbers of classes, by values."""
        outputs, targets = inputs.of(name, worker, 0), inputs.of(name, worker, 1)
        tally = self._tallies.get(f"{worker}/{name.removesuffix('_output_0')}_input_1")
        if outputs is None or targets is None or tally is None or not self._are_classes(tally):
            return None
        num_classes = sum(count > 0 for count in tally)
        if outputs.size != targets.size or targets.low < 0 or targets.high >= num_classes:
            return None
        if 1 < math.prod((targets.shape or ())[1:]) <= _MOST_COLUMNS:
            return None
        if inputs.kind(name, worker).is_of_classes:
            return None  # a cross entropy that the script averages
        message = f"is a distance to targets that look like numbers of {num_classes} classes"
        return LossMismatch("classes", num_classes, 2.0, message)

    def _are_classes(self, tally: list[int]) -> bool:
        """Return whether these are the numbers from 0 on, each about as often as the others."""
        seen = [count for count in tally if count]
        return (
            sum(seen) >= self._samples
            and len(seen) >= _FEWEST_CLASSES
            and all(tally[: len(seen)])
            and max(seen) <= _BALANCED * min(seen)
        )


def of_every_score(
    step: StepView, inputs: LossInputs, name: str, worker: str, value: float
) -> LossMismatch | None:
    """Return what is wrong if a loss is the distance of every score from the number of the class.

    As `((scores - labels[:, None]) ** 2).mean()`. Only values tell, which are saved seldom.

    Args:
        step: The step.
        inputs: The inputs of its losses.
        name: Name of the loss, `X_output_0`.
        worker: The worker.
        value: The loss.
    """
    kind = inputs.kind(name, worker)
    is_other = kind is LossKind.BINARY or (kind.is_of_classes and name.startswith(_WITH_NAMES))
    values = None if is_other else outputs_and_targets(step, name, worker)
    if values is None or not np.isfinite(value) or values[0].ndim != _MATRIX:
        return None
    scores, targets = (of.astype(np.float64) for of in values)
    num_classes = scores.shape[1]
    if targets.shape == scores.shape and (targets == targets[:, :1]).all():
        targets = targets[:, 0]  # spread over the scores
    classes = targets.reshape(-1)
    if len(classes) != len(scores) or not _FEWEST_CLASSES <= num_classes <= _MOST_CLASSES:
        return None
    if not np.isin(classes, np.arange(num_classes)).all() or len(np.unique(classes)) <= _MATRIX:
        return None
    apart = scores - classes[:, None]
    if not any(
        math.isclose(float(form(apart).mean()), value, rel_tol=_CLOSE)
        for form in (np.square, np.abs)
    ):
        return None
    message = f"is a distance of each of {num_classes} scores from the number of the class"
    return LossMismatch("classes", num_classes, 2.0, message)


class _Labels(NamedTuple):
    """Labels of a step that look like classes: of how many; size, smallest, largest and mean."""

    num_classes: int
    columns: list[float]

    def are(self, targets: Input) -> bool:
        """Return whether targets of a loss are these labels."""
        given = (targets.size, targets.low, targets.high, targets.mean)
        return all(
            math.isclose(a, b, rel_tol=1e-5) for a, b in zip(self.columns, given, strict=True)
        )


def _added(tally: list[int], values: Any) -> list[int] | None:
    """Return a tally with labels added; None if these are no classes, or too many."""
    try:
        classes = true_classes(values)
    except ValueError:
        return None
    if not len(classes):
        return tally
    if len(classes) != np.size(values) or classes.max() >= _MOST_CLASSES:
        return None
    added = np.bincount(classes, minlength=_MOST_CLASSES)
    return [min(int(a + b), 1 << 40) for a, b in zip(tally, added, strict=True)]
