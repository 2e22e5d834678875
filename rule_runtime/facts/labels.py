"""Labels of a step, and label statistics of a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.facts.losses import Input, Loss, Losses, LossKind, described
from rule_runtime.facts.saved_tensors import LARGEST
from rule_runtime.numerics.label_tally import MIN_CLASSES
from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = [
    "SORTED_SHARE",
    "TRAINING_DATA",
    "TRAINING_LABELS",
    "TRAINING_WEIGHTS",
    "LabelSeries",
    "Labels",
    "OtherLabels",
    "labels_of",
    "training_labels",
]

TRAINING_DATA: Final = CollectionConfig(
    "training_data", {"include_regex": "^training_data/", "save_raw_tensor": "True"}
)
"""Labels and weights of all rows of the training data, which the hook for XGBoost saves once."""
TRAINING_LABELS: Final = "training_data/Label"
"""Labels of all rows; integers only if they are classes."""
TRAINING_WEIGHTS: Final = "training_data/Weight"
"""Weights of these rows; absent if they are equal."""

SORTED_SHARE: Final = 0.5
"""Share of batches with a single class from which rows count as sorted."""

_MIN_ROWS: Final = 32
"""Minimum rows for a reliable share of labels."""
_MIN_IN_BATCH: Final = 8
"""Minimum rows of a batch that is unlikely to have one class by chance."""
_MIN_BATCHES: Final = 10
"""Minimum batches for the share of batches with one class."""


class Labels(NamedTuple):
    """One tensor of labels at a step.

    Attributes:
        at: Its row.
        loss: The loss that has them as targets by its name, if any.
        of_model: The only loss of the model if Keras saved them apart from it.
    """

    at: int
    name: str
    worker: str
    statistics: Input
    loss: Loss | None
    of_model: Loss | None = None

    @property
    def key(self) -> str:
        """Key of labels of the same task: name, type, size of a row, columns of the scores."""
        columns = self.loss and self.loss.num_classes
        task = f"{self.is_whole} {(self.statistics.shape or ())[2:]} {columns}"
        return f"{self.worker}/{self.name}/{task}"

    @property
    def num_rows(self) -> float:
        """Number of rows; all elements of a row, such as pixels, count as one."""
        return self.statistics.shape[0] if self.statistics.shape else self.statistics.size

    @property
    def is_single(self) -> bool:
        """Whether a row is one element."""
        return bool(self.statistics.shape) and math.prod((self.statistics.shape or ())[1:]) == 1

    @property
    def is_whole(self) -> bool:
        """Whether the elements have an integer type."""
        return self.statistics.dtype.startswith(("int", "uint", "bool"))

    @property
    def loss_value(self) -> float | None:
        """The value of the loss that has them as targets; None if unknown."""
        loss = self.loss or (self.of_model if self.may_be_made_up else None)
        return loss.value if loss and math.isfinite(loss.value) else None

    @property
    def are_classes(self) -> bool:
        """Whether they are known to be classes."""
        loss = self.loss
        return loss is None or self.is_whole or loss.kind in (LossKind.CLASSES, LossKind.BINARY)

    @property
    def may_be_made_up(self) -> bool:
        """Whether they may be constants from the script, as in adversarial training: -1, 0 or 1."""
        return not self.is_whole and self.statistics.low in (-1.0, 0.0, 1.0)

    @property
    def are_data(self) -> bool:
        """Whether they are known to be labels: an unknown kind of loss may have other targets."""
        loss = self.loss
        return loss is None or (loss.kind is not LossKind.UNKNOWN and not self.may_be_made_up)


def labels_of(step: StepView, rows: TensorRows) -> list[Labels]:
    """Return the finite labels of a step [R], by name and worker.

    Their name is `X_input_1` if they are targets of the loss `X_output_0`.
    """
    found = []
    of_keras = [loss for loss in step.fact(Losses).losses if loss.is_of_keras]
    for at, ((name, worker), of) in enumerate(described(rows).items()):
        owner = name.removesuffix("_input_1")
        loss = None if owner == name else step.fact(Losses).find(f"{owner}_output_0", worker)
        if -LARGEST < of.low <= of.high < LARGEST:
            own = [other for other in of_keras if other.worker == worker]
            found.append(Labels(at, name, worker, of, loss, own[0] if len(own) == 1 else None))
    return sorted(found, key=lambda labels: (labels.name, labels.worker))


def training_labels(step: StepView) -> tuple[TensorRows, list[Labels]]:
    """Return the finite labels of the whole training data, if this step saved them."""
    rows = step.tensors(regex=(f"^{TRAINING_LABELS}$",))
    return rows, labels_of(step, rows)


class OtherLabels(NamedTuple):
    """Labels of one series in other modes than training.

    Attributes:
        rows: Rows of the last phase.
        is_over: Whether training continued since; then the same rows may come again.
    """

    rows: float = 0.0
    mean: float = 0.0
    low: float = math.inf
    high: float = -math.inf
    is_over: bool = True

    def plus(self, labels: Labels) -> OtherLabels:
        """Return the labels with those of a further step, without those of an earlier phase."""
        before, of = OtherLabels() if self.is_over else self, labels.statistics
        rows = before.rows + labels.num_rows
        mean = before.mean + (of.mean - before.mean) * labels.num_rows / max(rows, 1.0)
        ends = min(before.low, of.low), max(before.high, of.high)
        return OtherLabels(rows, mean, *ends, is_over=False)

    def share_of_others(self, label: float) -> float:
        """Return a lower bound of the share of rows with another label than that of training.

        The mean deviates from the label by at most this share times the largest deviation.
        """
        farthest = max(self.high - label, label - self.low)
        share = abs(self.mean - label) / farthest if 0 < farthest < math.inf else 0.0
        return share if self.rows >= _MIN_ROWS else 0.0


class LabelSeries(NamedTuple):
    """Labels of one tensor over the training steps so far.

    Attributes:
        loss: The first loss that has them as targets.
        batches: Batches of class labels with at least 8 rows.
        one_class: Number of these with a single class.
        classes: The classes of these, at most 3.
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
        """Whether most batches have a single class, and not always the same."""
        are_many = self.batches >= _MIN_BATCHES and len(self.classes) >= MIN_CLASSES
        return are_many and self.one_class >= SORTED_SHARE * self.batches

    def plus(self, labels: Labels) -> LabelSeries:
        """Return the series with the labels of a step."""
        of = labels.statistics
        series = self._replace(
            low=min(self.low, of.low),
            high=max(self.high, of.high),
            rows=min(self.rows + labels.num_rows, LARGEST),
            steps=self.steps + 1,
            loss=labels.loss_value if self.loss is None else self.loss,
        )
        are_known = labels.loss is None or labels.loss.kind is not LossKind.UNKNOWN
        is_whole = of.low >= 0 and of.low.is_integer() and of.high.is_integer()
        is_batch = are_known and is_whole and labels.are_classes and labels.is_single
        if not is_batch or labels.num_rows < _MIN_IN_BATCH:
            return series
        series = series._replace(batches=series.batches + 1)
        if of.low != of.high:
            return series
        classes = [*series.classes, *({of.low} - set(series.classes))][:MIN_CLASSES]
        return series._replace(one_class=series.one_class + 1, classes=classes)
