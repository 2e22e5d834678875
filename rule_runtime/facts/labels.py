"""Labels of a step, and what is known of labels over a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from rule_runtime.facts.losses import Input, Loss, Losses, LossKind, described
from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["SORTED_SHARE", "LabelSeries", "Labels", "OtherLabels", "are_few", "labels_of"]

SORTED_SHARE: Final = 0.5
"""Share of batches with one class each from which rows are sorted."""

_FEW: Final = 4
"""Targets of a batch; the mean loss of so many scatters half as much as that of single rows."""
_LARGEST: Final = 1e100
"""Labels from here on are skipped: sums of them would not be finite."""
_MIN_ROWS: Final = 32
"""Rows from which a share of labels is no accident."""
_MIN_IN_BATCH: Final = 8
"""Rows of a batch that are hardly of one class by chance."""
_MIN_BATCHES: Final = 10
"""Batches from which the share of those with one class is judged."""
_MIN_CLASSES: Final = 3
"""Classes from which one class in each batch means sorted rows; two alternate in a GAN."""


class Labels(NamedTuple):
    """One tensor of labels at a step.

    Attributes:
        at: Row of the tensor.
        name: Its name.
        worker: The worker.
        statistics: Its statistics.
        loss: The loss whose targets they are; None if they are none.
    """

    at: int
    name: str
    worker: str
    statistics: Input
    loss: Loss | None

    @property
    def key(self) -> str:
        """What labels of the same task share: name, type, size of a row, columns of the scores."""
        columns = self.loss and self.loss.num_classes
        task = f"{self.is_whole} {(self.statistics.shape or ())[2:]} {columns}"
        return f"{self.worker}/{self.name}/{task}"

    @property
    def num_rows(self) -> float:
        """Number of rows; elements of a row, such as pixels, are alike."""
        return self.statistics.shape[0] if self.statistics.shape else self.statistics.size

    @property
    def is_single(self) -> bool:
        """Whether a row is one element."""
        return bool(self.statistics.shape) and math.prod((self.statistics.shape or ())[1:]) == 1

    @property
    def is_whole(self) -> bool:
        """Whether the elements have a type of whole numbers."""
        return self.statistics.dtype.startswith(("int", "uint", "bool"))

    @property
    def loss_value(self) -> float | None:
        """The loss whose targets they are; None if it is unknown."""
        return self.loss.value if self.loss and math.isfinite(self.loss.value) else None

    @property
    def are_classes(self) -> bool:
        """Whether they are known to be classes."""
        loss = self.loss
        return loss is None or self.is_whole or loss.kind in (LossKind.CLASSES, LossKind.BINARY)

    @property
    def are_data(self) -> bool:
        """Whether they are known to be labels, not constants that a script makes up.

        Real targets of -1, 0 or 1 may be made up, as in adversarial training. What a loss of an
        unknown kind compares may be no label at all.
        """
        loss = self.loss
        if loss is None:
            return True
        is_made_up = not self.is_whole and self.statistics.low in (-1.0, 0.0, 1.0)
        return loss.kind is not LossKind.UNKNOWN and not is_made_up


def labels_of(step: StepView, rows: TensorRows) -> list[Labels]:
    """Return the finite labels of a step [R], by name and worker.

    They are named `X_input_1` if they are targets of the loss `X_output_0`.
    """
    found = []
    for at, ((name, worker), of) in enumerate(described(rows).items()):
        owner = name.removesuffix("_input_1")
        loss = None if owner == name else step.fact(Losses).find(f"{owner}_output_0", worker)
        if -_LARGEST < of.low <= of.high < _LARGEST:
            found.append(Labels(at, name, worker, of, loss))
    return sorted(found, key=lambda labels: (labels.name, labels.worker))


def are_few(step: StepView) -> bool:
    """Return whether the losses compare less than four targets, so that they scatter by nature."""
    targets = [loss.targets for loss in step.fact(Losses).losses if loss.targets is not None]
    return bool(targets) and max(of.size for of in targets) < _FEW


class OtherLabels(NamedTuple):
    """Labels of one series in other modes than training.

    Attributes:
        rows: Rows of the latest phase.
        mean: Mean label.
        low: Smallest label.
        high: Largest label.
        is_over: Whether training continued since, so that the same rows may come again.
    """

    rows: float = 0.0
    mean: float = 0.0
    low: float = math.inf
    high: float = -math.inf
    is_over: bool = True

    def plus(self, labels: Labels) -> OtherLabels:
        """Return the labels with those of a further step; without those of an earlier phase."""
        before = OtherLabels() if self.is_over else self
        rows = before.rows + labels.num_rows
        mean = before.mean + (labels.statistics.mean - before.mean) * labels.num_rows / max(
            rows, 1.0
        )
        ends = min(before.low, labels.statistics.low), max(before.high, labels.statistics.high)
        return OtherLabels(rows, mean, *ends, is_over=False)

    def share_of_others(self, label: float) -> float:
        """Return at least which share of the rows has another label than the one of training.

        The mean deviates from the label by at most this share of the largest deviation.
        """
        farthest = max(self.high - label, label - self.low)
        share = abs(self.mean - label) / farthest if 0 < farthest < math.inf else 0.0
        return share if self.rows >= _MIN_ROWS else 0.0


class LabelSeries(NamedTuple):
    """Labels of one tensor over the training steps so far.

    Attributes:
        low: Smallest label.
        high: Largest label.
        rows: Number of rows.
        steps: Number of saved steps.
        loss: The first loss whose targets they are.
        batches: Batches of class labels, of 8 rows or more.
        one_class: Those of them with one class only.
        classes: The classes of these, 3 at most.
    """

    low: float = math.inf
    high: float = -math.inf
    rows: float = 0.0
    steps: int = 0
    loss: float | None = None
    batches: int = 0
    one_class: int = 0
    classes: Sequence[float] = ()

    @property
    def is_sorted(self) -> bool:
        """Whether most batches have one class each, and not always the same."""
        are_many = self.batches >= _MIN_BATCHES and len(self.classes) >= _MIN_CLASSES
        return are_many and self.one_class >= SORTED_SHARE * self.batches

    def plus(self, labels: Labels) -> LabelSeries:
        """Return the series with the labels of a step."""
        series = self._replace(
            low=min(self.low, labels.statistics.low),
            high=max(self.high, labels.statistics.high),
            rows=min(self.rows + labels.num_rows, _LARGEST),
            steps=self.steps + 1,
            loss=labels.loss_value if self.loss is None else self.loss,
        )
        are_known = labels.loss is None or labels.loss.kind is not LossKind.UNKNOWN
        is_whole = (
            labels.statistics.low >= 0
            and labels.statistics.low.is_integer()
            and labels.statistics.high.is_integer()
        )
        is_batch = are_known and is_whole and labels.are_classes and labels.is_single
        if not is_batch or labels.num_rows < _MIN_IN_BATCH:
            return series
        if labels.statistics.low != labels.statistics.high:
            return series._replace(batches=series.batches + 1)
        classes = [*series.classes, *({labels.statistics.low} - set(series.classes))][:_MIN_CLASSES]
        num = series.one_class + 1
        return series._replace(batches=series.batches + 1, one_class=num, classes=classes)
