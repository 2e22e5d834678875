"""Labels of a step, with what is known of the loss whose targets they are."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from rule_runtime.facts.loss_inputs import LossInputs, LossKind
from rule_runtime.facts.selection import finite_means

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["SORTED_SHARE", "LabelSeries", "Labels", "OtherLabels", "labels_of"]

SORTED_SHARE: Final = 0.5
"""Share of batches with one class each from which rows are sorted."""

_CLASSES: Final = ("int", "uint", "bool")
_LARGEST: Final = 1e100
"""Labels from here on are skipped: sums of them would not be finite."""

_FEWEST_ROWS: Final = 32
"""Rows from which a share of labels, or equality of rows, is no accident."""

_ACCIDENT: Final = 1.5
"""Rows with other labels that may be an accident."""

_NO_LABELS: Final = (0.0, 0.0, 0.0, 0.0, 1.0)

_FEWEST_IN_BATCH: Final = 8
"""Rows of a batch that are hardly of one class by chance."""

_FEWEST_BATCHES: Final = 10
"""Batches from which the share of those with one class is judged."""

_SEVERAL: Final = 3
"""Classes from which one class in each batch means sorted rows."""

_IN_CLASS: Final = 2
"""Different numbers in a one-hot or smoothed row of a class."""

_CODES: Final = (-1.0, 0.0, 1.0)
"""Real numbers that scripts use for real, generated or no residual, instead of data."""


class Labels(NamedTuple):
    """One tensor of labels at a step.

    Attributes:
        at: Row of the tensor.
        name: Its name.
        worker: The worker.
        low: Smallest element.
        high: Largest element.
        mean: Mean of the elements.
        num_rows: Number of rows; elements of a row, such as pixels, are alike.
        is_single: Whether a row is one element.
        task: What labels of the same task share: type, size of a row, columns of the scores.
        loss: The loss whose targets they are; None if unknown.
        is_of_classes: Whether they are known to be classes.
        is_of_numbers: Whether their loss compares numbers.
        is_of_named_loss: Whether they are no targets, or those of a loss named `...Loss`.
        is_real: Whether they are real numbers that a loss compares.
    """

    at: int
    name: str
    worker: str
    low: float
    high: float
    mean: float
    num_rows: float
    is_single: bool
    task: str
    loss: float | None = None
    is_of_classes: bool = True
    is_of_numbers: bool = False
    is_of_named_loss: bool = True
    is_real: bool = False

    @property
    def key(self) -> str:
        """What labels of one series share: worker, name and task."""
        return f"{self.worker}/{self.name}/{self.task}"

    @property
    def may_be_code(self) -> bool:
        """Whether all are one number that a script may use instead of data."""
        is_within = abs(self.low) <= 1 and self.name == "Loss_input_1"
        return self.is_real and (self.low in _CODES or is_within)


def labels_of(step: StepView, rows: TensorRows) -> list[Labels]:
    """Return the finite labels of a step, by name and worker.

    Args:
        step: The step.
        rows: Tensors of labels, `X_input_1` if they are targets of the loss `X_output_0`.
    """
    losses = step.tensors(regex=(r"_output_0$",))
    pairs = zip(losses.names, losses.workers, strict=True)
    means = dict(zip(pairs, finite_means(losses).tolist(), strict=True))
    inputs = step.fact(LossInputs)
    columns = zip(*(rows.column(of).tolist() for of in ("min", "max", "mean", "size")), strict=True)
    found = []
    for at, (low, high, mean, size) in enumerate(columns):
        if not (-_LARGEST < low <= high < _LARGEST):
            continue
        name, worker, shape = rows.names[at], rows.workers[at], rows.shapes[at]
        is_whole = (rows.dtypes[at] or "").startswith(_CLASSES)
        num_rows = shape[0] if shape else size
        single = bool(shape) and math.prod((shape or ())[1:]) == 1
        task = f"{'whole' if is_whole else 'real'} {(shape or ())[2:]}"
        labels = Labels(at, name, worker, low, high, mean, num_rows, single, task)
        owner = name.removesuffix("_input_1")
        if owner != name:
            loss = (f"{owner}_output_0", worker)
            kind, value = inputs.kind(*loss), means.get(loss, math.nan)
            labels = labels._replace(
                task=f"{task} {inputs.num_classes(*loss)}",
                loss=None if math.isnan(value) else value,
                is_of_classes=is_whole or kind in (LossKind.CLASSES, LossKind.BINARY),
                is_of_numbers=kind.is_of_numbers,
                is_of_named_loss=owner.lower().endswith("loss"),
                is_real=not is_whole,
            )
        found.append(labels)
    return sorted(found, key=lambda labels: (labels.name, labels.worker))


class OtherLabels:
    """Labels of other modes than training.

    Args:
        known: Its JSON state: of each series rows, mean, smallest and largest label of the latest
            phase, and whether training went on since, so that the same rows may come again.
        max_series: How many series are kept.
    """

    def __init__(self, known: dict[str, list[float]], max_series: int) -> None:
        self._known = known
        self._max_series = max_series

    def add(self, labels: Iterable[Labels]) -> None:
        """Add the labels of a step.

        Args:
            labels: The labels.
        """
        for each in labels:
            if each.key not in self._known and len(self._known) >= self._max_series:
                continue
            rows, mean, low, high, is_over = self._known.get(each.key, _NO_LABELS)
            if is_over:
                rows, mean, low, high = 0.0, 0.0, each.low, each.high
            rows += each.num_rows
            mean += (each.mean - mean) * each.num_rows / max(rows, 1.0)
            self._known[each.key] = [rows, mean, min(low, each.low), max(high, each.high), 0.0]

    def end_phase(self) -> None:
        """Tell that training goes on."""
        for numbers in self._known.values():
            numbers[-1] = 1.0

    def share_of_others(self, labels: Labels) -> float:
        """Return at least which share of them differs from labels that are all the same.

        The mean deviates from the one value by at most this share of the largest deviation.

        Args:
            labels: Labels of training, all the same.
        """
        rows, mean, low, high, _ = self._known.get(labels.key, _NO_LABELS)
        farthest = max(high - labels.low, labels.low - low)
        share = abs(mean - labels.low) / farthest if farthest > 0 else 0.0
        # One row may be an accident, and so may one large object in a single image.
        return share if rows >= _FEWEST_ROWS and share * rows > _ACCIDENT else 0.0

    def have_other_range(self, labels: Labels) -> bool:
        """Return whether their smallest or largest label differs.

        Args:
            labels: Labels of training.
        """
        known = self._known.get(labels.key)
        return known is not None and known[2:4] != [labels.low, labels.high]


class LabelSeries(NamedTuple):
    """Labels of one tensor over the training steps so far.

    Attributes:
        low: Smallest label.
        high: Largest label.
        rows: Number of rows.
        steps: Number of saved steps.
        loss: The first loss whose targets they are.
        equal_row: A number for the row that all rows equal; 0 if they differ or are unknown.
        equal_steps: Saved steps in which rows were compared.
        may_be_class: Whether that row may be a class: two different numbers from 0 to 1 at most.
        batches: Batches of class labels, of 8 rows or more.
        one_class: Those of them with one class only.
        classes: The classes of these, 3 at most.
    """

    low: float = math.inf
    high: float = -math.inf
    rows: float = 0.0
    steps: int = 0
    loss: float | None = None
    equal_row: int = 0
    equal_steps: int = 0
    may_be_class: bool = False
    batches: int = 0
    one_class: int = 0
    classes: Sequence[float] = ()

    @classmethod
    def read(cls, numbers: list[Any] | None) -> LabelSeries:
        """Return a series of its JSON state; an empty one of None."""
        return cls() if numbers is None else cls(*numbers)

    @property
    def is_sorted(self) -> bool:
        """Whether most batches have one class each, and not always the same.

        Two classes alone come in turn in adversarial training.
        """
        are_many = self.batches >= _FEWEST_BATCHES and len(self.classes) >= _SEVERAL
        return are_many and self.one_class >= SORTED_SHARE * self.batches

    def plus(self, labels: Labels, step: StepView) -> LabelSeries:
        """Return the series with the labels of a step.

        Args:
            labels: The labels.
            step: The step.
        """
        found = self._replace(
            low=min(self.low, labels.low),
            high=max(self.high, labels.high),
            rows=min(self.rows + labels.num_rows, _LARGEST),
            steps=self.steps + 1,
            loss=labels.loss if self.loss is None else self.loss,
        )
        is_whole = labels.low >= 0 and labels.low.is_integer() and labels.high.is_integer()
        if not labels.is_of_named_loss:
            return found
        if is_whole and labels.is_of_classes and labels.is_single:
            return _with_batch(found, labels)
        return _with_row(found, labels, step)


def _with_batch(series: LabelSeries, labels: Labels) -> LabelSeries:
    """Count a batch of classes."""
    if labels.num_rows < _FEWEST_IN_BATCH:
        return series
    found = series._replace(batches=series.batches + 1)
    if labels.low != labels.high:
        return found
    classes = [*series.classes, *({labels.low} - set(series.classes))][:_SEVERAL]
    return found._replace(one_class=series.one_class + 1, classes=classes)


def _with_row(series: LabelSeries, labels: Labels, step: StepView) -> LabelSeries:
    """Compare the rows of a step with those before, unless they differed already."""
    is_known = labels.low < labels.high and (series.equal_row or not series.equal_steps)
    if not is_known or labels.is_single or labels.num_rows < _FEWEST_ROWS:
        return series
    values = step.values((labels.name,), labels.worker).get(labels.name)
    if values is None or values.ndim <= 1:
        return series
    row = 0
    if (values == values[0]).all():
        row = zlib.crc32(np.ascontiguousarray(values[0]).tobytes())
    is_same = not series.equal_steps or row == series.equal_row
    is_class = len(np.unique(values[0])) <= _IN_CLASS and 0 <= labels.low <= labels.high <= 1
    return series._replace(
        equal_row=row if is_same else 0,
        equal_steps=series.equal_steps + 1,
        may_be_class=is_class,
    )
