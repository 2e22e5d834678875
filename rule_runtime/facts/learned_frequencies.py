"""Whether a model has learned more than one answer for all rows.

For classes that is how frequent they are, and for numbers their mean, of which the mean square is
the variance. That of each batch is what its loss is divided by: it scatters like the loss.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from rule_runtime.facts.loss_inputs import Input, LossInputs, LossKind
from rule_runtime.facts.loss_values import outputs_and_targets
from rule_runtime.facts.selection import finite_means
from rule_runtime.numerics.agreement import Agreement
from rule_runtime.numerics.binned_means import BinnedMeans
from rule_runtime.numerics.class_pairs import class_pairs
from rule_runtime.numerics.recomputed_loss import best_shares
from rule_runtime.numerics.robust import noise, trend

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["Learned", "LearnedFrequencies"]

_BIN_STEPS: Final = 5
_NUM_LATEST: Final = 20
_NUM_KEPT: Final = 40
_FEWEST_BEFORE: Final = 5
_MOST_CLASSES: Final = 64
_FEWEST_ROWS: Final = 20
_EVEN: Final = 0.6
_FALLING: Final = -1.64
_HARDLY: Final = 0.1
_NO_SHARE: Final = 0.1
_LIKE_EVEN: Final = (0.85, 1.3)
_MATRIX: Final = 2
_TWO: Final = 2
_WHOLE: Final = 1e-4
_FAR_ABOVE: Final = 1.1
_GROUPED: Final = 3.0
_FEWEST_BATCHES: Final = 5
_CONSTANT: Final = 1e-3


class Learned(NamedTuple):
    """What the latest 20 bins of 5 steps tell.

    Attributes:
        row: The loss, by its row among the losses of the step.
        loss: Median of the bins.
        error: Its standard error.
        trend: The z-score of the Mann-Kendall test of the bins.
        fall: Median of the first third of the bins, minus that of the last third.
        fell: Of a mean square, the median of the 5 to 20 bins before these, minus that of these; 0
            without so many.
        entropy: The entropy of the labels so far; 0 if one class has nearly all.
        share: What was right in the latest 20 saved steps, of what chance leaves; 0 if not known.
        is_of_squares: Whether the loss is a mean square, in parts of the variance of its targets.
    """

    row: int
    loss: float
    error: float
    trend: float
    fall: float
    fell: float
    entropy: float
    share: float
    is_of_squares: bool

    @property
    def message(self) -> str:
        """The loss, and what it is compared with, in words."""
        if self.is_of_squares:
            return (
                f"is {self.loss:.3g} of the variance of its targets, which their mean would leave: "
                "outputs tell hardly anything of them"
            )
        fall = 100 * (1 - self.loss / self.entropy)
        return (
            f"is {self.loss:.4g}, {fall:.3g} % below the {self.entropy:.4g} that one answer for "
            "all rows gives: what was learned is how frequent labels are"
        )

    def is_all(self, margin: float) -> bool:
        """Return whether the frequencies of classes are all that was learned.

        Args:
            margin: How far a loss must lie below their entropy to count as more, in parts of it.
        """
        return bool(
            self.entropy > 0
            and (self.loss < _FAR_ABOVE or not self.is_of_squares)
            and self.loss > (1 - margin) * self.entropy
            and 2 * self.error < margin * self.entropy
            and (self.trend > _FALLING or self.fall < _HARDLY * margin * self.entropy)
            and self.fell <= margin * self.entropy
            and self.share < _NO_SHARE
        )


class LearnedFrequencies:
    """The only loss of the first worker that saved labels and predictions, or targets of 0 and 1.

    Args:
        memory: Changed in place: `counts`, of at most 64 classes; `columns`, how often each of at
            most 64 columns of labels of yes and no was 1, and `rows`, of how many rows; `first`,
            the first loss; `plain`, whether values proved that classes have no weights; `right`,
            agreements of the latest 20 steps; `bin`, the open bin; `bins`,
            the latest 40. `many`, if there are more classes.
    """

    def __init__(self, memory: dict[str, Any]) -> None:
        self._memory = memory

    def add(self, step: StepView) -> Learned | None:
        """Add a step of training; return what is known when a bin has ended.

        Args:
            step: The step.
        """
        memory = self._memory
        rows = step.tensors(collections=("losses",))
        of_worker = dict(zip(rows.workers, range(len(rows)), strict=True))
        if memory.get("many") or len(of_worker) != len(rows) or not of_worker:
            return None
        worker = min(of_worker)
        row = of_worker[worker]
        loss = float(finite_means(rows)[row])
        inputs = step.fact(LossInputs)
        is_of_squares = inputs.kind(rows.names[row], worker) is LossKind.SQUARES
        if is_of_squares:
            loss /= self._variance(inputs.of(rows.names[row], worker, 1))
        if not math.isfinite(loss):
            return None
        if not is_of_squares and not self._has_counted(step, rows.names[row], worker, loss):
            return None
        bins = BinnedMeans(memory.get("bin", {}), _BIN_STEPS)
        ended = bins.add(step.mode_step, {("", ""): loss})
        memory["bin"] = bins.to_json()
        if not ended:
            return None
        memory["bins"] = [*memory.get("bins", []), *ended.values()][-_NUM_KEPT:]
        if len(memory["bins"]) < _NUM_LATEST:
            return None
        before, means = np.split(np.array(memory["bins"]), [-_NUM_LATEST])
        error = math.sqrt(math.pi / 2) * noise(means) / math.sqrt(len(means))
        share = Agreement.total(memory["right"]).share if "right" in memory else 0.0
        third = len(means) // 3
        fall = float(np.median(means[:third]) - np.median(means[-third:]))
        loss = float(np.median(means))
        is_known = is_of_squares and len(before) >= _FEWEST_BEFORE
        fell = float(np.median(before)) - loss if is_known else 0.0
        entropy = 1.0 if is_of_squares else self._entropy()
        return Learned(row, loss, error, trend(means), fall, fell, entropy, share, is_of_squares)

    def _variance(self, targets: Input | None) -> float:
        """Return the variance of numbers, without bias; NaN if it tells nothing.

        So it is where the means of batches differ more than by chance: then each is of a group of
        its own, as of one subject, and to tell the groups apart may be all there is to learn.
        """
        if targets is None or not targets.dtype.startswith("float"):
            return math.nan
        if targets.size < _FEWEST_ROWS or not targets.std > _CONSTANT * abs(targets.mean):
            return math.nan
        variance = targets.std * targets.std * targets.size / (targets.size - 1)
        batches = [*self._memory.get("batches", []), [targets.mean, variance / targets.size]]
        self._memory["batches"] = batches[-_NUM_LATEST:]
        means, by_chance = np.array(self._memory["batches"]).T
        is_few = len(means) < _FEWEST_BATCHES
        if is_few or float(means.var(ddof=1)) > _GROUPED * float(by_chance.mean()):
            return math.nan
        return variance or math.nan

    def _has_counted(self, step: StepView, name: str, worker: str, loss: float) -> bool:
        """Add the labels of a step; say whether the loss can be compared with their entropy."""
        inputs = step.fact(LossInputs)
        kind = inputs.kind(name, worker)
        targets = inputs.of(name, worker, 1)
        if kind is LossKind.BINARY:
            self._count_columns(step, worker, targets)
            low, high = (bound * math.log(2) for bound in _LIKE_EVEN)
            is_even = low <= self._memory.setdefault("first", loss) <= high
            return is_even and self._count_yes_and_no(targets)
        if not kind.is_of_classes:
            return False
        return self._count(step, worker) or self._has_counted_two(step, name, worker, loss)

    def _has_counted_two(self, step: StepView, name: str, worker: str, loss: float) -> bool:
        """Add numbers of two classes, if values have proven that none of them has a weight."""
        inputs = step.fact(LossInputs)
        if "right" in self._memory or inputs.num_classes(name, worker) != _TWO:
            return False
        values = outputs_and_targets(step, name, worker)
        if values is not None:
            self._memory["plain"] = best_shares(*values, loss) is not None
        is_plain = self._memory.get("plain", False)
        return is_plain and self._count_yes_and_no(inputs.of(name, worker, 1))

    def _count_yes_and_no(self, targets: Input | None) -> bool:
        """Add targets of 0 and 1; say whether they are."""
        if targets is None:
            return False
        if not math.isclose(targets.mean_square, targets.mean, abs_tol=_WHOLE):
            return False
        known = dict(self._memory.get("counts", ((0, 0.0), (1, 0.0))))
        ones = targets.size * targets.mean
        counts = known[0] + targets.size - ones, known[1] + ones
        self._memory["counts"] = [[label, count] for label, count in enumerate(counts)]
        return True

    def _count_columns(self, step: StepView, worker: str, targets: Input | None) -> None:
        """Add labels that are the targets, if each row has several: each has its own frequency."""
        shape = targets.shape if targets is not None else None
        if targets is None or shape is None or len(shape) != _MATRIX or shape[1] > _MOST_CLASSES:
            return
        labels = step.values(("labels",), worker).get("labels")
        if labels is None or labels.shape != shape or labels.dtype.kind not in "biuf":
            return
        ones = labels.astype(np.float64).sum(axis=0)
        if not math.isclose(ones.sum(), targets.size * targets.mean, rel_tol=_WHOLE):
            return
        before = self._memory.get("columns", [0.0] * len(ones))
        if len(before) == len(ones):
            self._memory["columns"] = [float(a + b) for a, b in zip(before, ones, strict=True)]
            self._memory["rows"] = self._memory.get("rows", 0) + len(labels)

    def _count(self, step: StepView, worker: str) -> bool:
        """Add the labels of a step; say whether there are any, with predictions."""
        memory = self._memory
        values = step.values(("labels", "predictions"), worker)
        if len(values) != 2:  # noqa: PLR2004
            return False
        try:
            found = class_pairs(values["labels"], values["predictions"])
        except ValueError:
            return False
        counts = Counter({int(label): count for label, count in memory.get("counts", ())})
        counts.update(found.labels.tolist())
        memory["many"] = len(counts) > _MOST_CLASSES
        if memory["many"] or not len(found.labels):
            return False
        memory["counts"] = [list(pair) for pair in sorted(counts.items())]
        right = list(Agreement.of(found.labels, found.predictions))
        memory["right"] = [*memory.get("right", []), right][-_NUM_LATEST:]
        return True

    def _entropy(self) -> float:
        counts = np.array([n for _, n in self._memory["counts"] if n > 0], np.float64)
        shares = counts / counts.sum()
        entropy = -float((shares * np.log(shares)).sum())
        is_known = counts.sum() >= _FEWEST_ROWS * len(counts) and len(counts) > 1
        num_labels = float(counts.sum())
        ones = np.array(self._memory.get("columns", ()), np.float64)
        if len(ones) > 1 and math.isclose(self._memory["rows"] * len(ones), num_labels):
            num_labels = float(self._memory["rows"])
            ones = ones[(ones > 0) & (ones < num_labels)] / num_labels
            both = np.stack([ones, 1 - ones])
            entropy = -float((both * np.log(both)).sum()) / len(self._memory["columns"])
        if not is_known or entropy < _EVEN * math.log(len(counts)):
            return 0.0
        return entropy + (len(counts) - 1) / (2 * num_labels)
