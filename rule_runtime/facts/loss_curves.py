"""Training losses with their targets, and the base class of rules for curves of a run."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rule_runtime.engine.needs import Needs
from rule_runtime.engine.outcome import (
    IssueFound,
    Missing,
    NotApplicable,
    NotEvaluated,
    Outcome,
    Passed,
)
from rule_runtime.engine.rule import AtLeast, Memory, Rule, Unit
from rule_runtime.facts.labels import rows_of_batch
from rule_runtime.facts.loss_sides import loss_sides
from rule_runtime.facts.losses import Losses, LossKind, with_constant_targets
from rule_runtime.facts.missing import missing_counted_loss, missing_loss
from rule_runtime.facts.selection import finding, finite_means, is_training, saved_every
from rule_runtime.numerics.association import Association
from rule_runtime.numerics.series_memory import MAX_SERIES, NumberSeries, Series, SeriesMemory
from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = [
    "CurveRule",
    "Finding",
    "Points",
    "training_losses",
    "training_points",
    "unrelated_outputs",
]

_WITHOUT_TARGETS: Final = (LossKind.UNKNOWN, LossKind.LOOKS_LIKE_CLASSES)
"""Kinds of losses with arbitrary inputs: embeddings, advantages, logarithms."""
_NUM_STEPS: Final = 5
"""Number of latest steps with values that are combined."""
_FEWEST_STEPS: Final = 3
"""Minimum number of steps with values; fewer may be unusual batches."""
_CHANCE: Final = 2.0
"""Threshold of the correlation in standard deviations; 5 % of unrelated outputs exceed it."""
_MAX_DEVIATION: Final = 0.067
"""Maximum standard deviation by chance: a correlation of 0.2 would be three of these."""


class Points(NamedTuple):
    """The data that a step adds to curves.

    Attributes:
        rows: Tensors of the step [R].
        at: The row that a finding names, for each curve.
        values: The number of this step, for each curve.
    """

    rows: TensorRows
    at: dict[Series, int]
    values: dict[Series, float]


def training_points(step: StepView) -> Points:
    """Return the finite training losses of a step that should fall, by usual name.

    Raises:
        Missing: There is no such loss.
    """
    rows = step.tensors(collections=("losses",))
    means = finite_means(rows)
    losses = training_losses(step, rows, means)
    if not len(rows):
        raise missing_loss(step)
    if not losses:
        raise missing_counted_loss(rows, means, "is no training loss that should fall")
    constant = with_constant_targets(step, losses)
    at = {names: row for names, row in losses.items() if names not in constant}
    if not at:
        raise Missing(f"the targets of {min(rows.names)} are all the same")
    return Points(rows, at, {names: float(means[row]) for names, row in at.items()})


def training_losses(
    step: StepView, rows: TensorRows, means: npt.NDArray[np.float64]
) -> dict[Series, int]:
    """Return the rows of finite training losses [R] by their usual name and worker.

    Validation losses, and metrics that should grow, are excluded.
    """
    sides = loss_sides(step, rows)
    finite = np.flatnonzero(np.isfinite(means)).tolist()
    training = [at for at in finite if sides[at].is_training and sides[at].key is not None]
    return {(sides[at].name, rows.workers[at]): at for at in training}


def unrelated_outputs(step: StepView, memory: Memory) -> dict[Series, Association]:
    """Add the values of a step; return the losses whose outputs are unrelated to their targets.

    The permutation test compares outputs with their targets and with those of other rows. The loss
    must be the only one of its worker, and compare the two by its name: a good generator makes a
    discriminator's outputs unrelated to their targets.

    Memory: `associations` of at most 32 losses at the latest 5 steps with values.
    """
    facts = step.fact(Losses)
    known: dict[str, list[list[float]]] = memory.setdefault("associations", {})
    found = {}
    losses = step.fact(training_points).at
    workers = [worker for _, worker in losses]
    for name, worker in losses:
        key = f"{worker}/{name}"
        is_unknown = facts.find(name, worker).kind in _WITHOUT_TARGETS
        if is_unknown or workers.count(worker) > 1:
            continue
        values = facts.values(facts.find(name, worker))
        association = None if values is None else Association.of(*values)
        if association is None or (key not in known and len(known) >= MAX_SERIES):
            continue
        known[key] = [*known.get(key, []), list(association)][-_NUM_STEPS:]
        total = Association(*(sum(column) for column in zip(*known[key], strict=True)))
        would_show = total.deviation <= _MAX_DEVIATION and len(known[key]) >= _FEWEST_STEPS
        if would_show and abs(total.correlation) <= _CHANCE * total.deviation:
            found[name, worker] = total
    return found


class Finding(NamedTuple):
    """A fault in one curve.

    Attributes:
        value: The measured value.
        threshold: The threshold of the value.
        message: The finding in words.
        measure: Name of the measure; empty for the rule's measure.
    """

    value: float
    threshold: float
    message: str
    measure: str = ""

    @property
    def excess(self) -> float:
        """The distance of the value from its threshold, relative to the threshold."""
        return abs(self.value - self.threshold) / (abs(self.threshold) or 1.0)


class CurveRule(Rule):
    """Evaluates numbers of a run step by step, such as its losses.

    A fault is reported only if all curves of a worker have it, because they may be opposed, as in
    adversarial training. Curves that start at 0 have no scale and are ignored.

    Attributes:
        noun: Noun for one of the numbers.
        measure: Name of the measure.
        num_first: Number of first numbers of a curve that are stored.
        spacing: In each interval of this many steps, only the first saved step counts.
        compares_together: Whether `_detect` compares the latest `patience` numbers with earlier
            ones. Otherwise it must return a finding `patience` times in a row.
        needs_single_curve: Whether workers with several curves are not evaluated.
    """

    noun: ClassVar[str] = "loss"
    measure: ClassVar[str]
    num_first: ClassVar[int] = 5
    spacing: ClassVar[int] = 1
    compares_together: ClassVar[bool] = False
    needs_single_curve: ClassVar[bool] = False

    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 3

    collections = saved_every(10, "losses")

    def needs(self) -> Needs:
        """Return the length of a curve from which a fault of all its numbers is reported."""
        num_in_a_row = 1 if self.compares_together else self.patience
        return Needs(elements=self._window[0] + num_in_a_row - 1, noun=self.noun)

    @property
    @abstractmethod
    def _window(self) -> tuple[int, int]:
        """Minimum length of a curve, and maximum number of latest numbers that are used."""

    def _points(self, step: StepView) -> Points:
        """Return the numbers of a step."""
        return step.fact(training_points)

    @abstractmethod
    def _detect(self, series: NumberSeries) -> Finding | None:
        """Return the fault of a curve; None if there is none."""

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Add the numbers of a step to the curves, and evaluate these.

        Memory: `history`, the first and latest numbers of at most 32 curves; `rows` of a batch.

        Raises:
            NotEnough: No curve is long enough.
        """
        if not is_training(step):
            return NotApplicable(f"steps of mode {step.mode.name} are not training steps")
        points, history = self._points(step), self._history(memory)
        if memory.get("latest") == step.mode_step // self.spacing:
            return NotApplicable(f"only one of {self.spacing} steps is evaluated")
        memory["latest"] = step.mode_step // self.spacing
        added = history.add(points.values)
        memory["history"] = history.to_json()
        counts = {names: history.of(names).count for names in history.names}
        most, fewest = max(counts.values(), default=0), self._window[0]
        if most < fewest:
            raise self.needs().too_few(most)
        ready = [names for names in added if counts[names] >= fewest and names in points.at]
        rows = memory["rows"] = step.fact(rows_of_batch) or memory.get("rows")
        series = {names: replace(history.of(names), rows=rows or math.nan) for names in ready}
        curves = {names: each for names, each in series.items() if each.start > 0}
        findings = {names: self._repeated(curve) for names, curve in curves.items()}
        sound = {names[1] for names, finding in findings.items() if finding is None}
        if self.needs_single_curve:
            workers = [worker for _, worker in findings]
            sound |= {worker for worker in workers if workers.count(worker) > 1}
        found = {names: each for names, each in findings.items() if each and names[1] not in sound}
        if found:
            return self._worst(step, points, found)
        needs = self.needs()
        if most < needs.elements:
            return NotEvaluated(str(needs.too_few(most)), needs_more=True)
        return Passed()

    def _history(self, memory: Memory) -> SeriesMemory:
        num_latest = self._window[1] + self.patience
        data = memory.get("history", {})
        return SeriesMemory(data, num_first=self.num_first, num_latest=num_latest)

    def _repeated(self, series: NumberSeries) -> Finding | None:
        """Return the finding of a curve if its previous numbers also had one."""
        for num in reversed(range(1 if self.compares_together else self.patience)):
            before = series.before(num)
            finding = self._detect(before) if before.count >= self._window[0] else None
            if finding is None:
                return None
        return finding

    def _worst(self, step: StepView, points: Points, found: Mapping[Series, Finding]) -> IssueFound:
        """Return the finding with the largest distance from its threshold."""
        names = min(found, key=lambda names: (-found[names].excess, names))
        worst = found[names]
        measured = (worst.measure or self.measure, worst.value, worst.threshold)
        return finding(self, step, (points.rows, points.at[names]), measured, worst.message)
