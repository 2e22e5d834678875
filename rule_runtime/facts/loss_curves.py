"""Training losses and what they compare, and the base of the rules that judge curves of a run."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rule_runtime.engine.outcome import IssueFound, Missing, NotApplicable, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, Memory, Rule, Unit
from rule_runtime.facts.labels import are_few
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
"""Kinds of losses whose inputs may be anything: embeddings, advantages, logarithms."""
_NUM_STEPS: Final = 5
"""Latest steps with values that count together."""
_FEWEST_STEPS: Final = 3
"""Steps with values; fewer may be odd batches."""
_CHANCE: Final = 2.0
"""Standard deviations of the correlation by chance; 5 % of unrelated outputs exceed them."""
_MAX_DEVIATION: Final = 0.067
"""Standard deviation by chance, of which a correlation of 0.2 would be three and so would show."""


class Points(NamedTuple):
    """What a step adds to some curves.

    Attributes:
        rows: Tensors of the step [R].
        at: For each curve the row that a finding names.
        values: For each curve its number at this step.
    """

    rows: TensorRows
    at: dict[Series, int]
    values: dict[Series, float]


def training_points(step: StepView) -> Points:
    """Return the finite training losses of a step that should fall, by usual name; a fact.

    Raises:
        Missing: There is none.
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
    """Return the rows of finite training losses [R] by their usual names, and worker.

    Validation losses and metrics that should grow are left out.
    """
    sides = loss_sides(step, rows)
    finite = np.flatnonzero(np.isfinite(means)).tolist()
    training = [at for at in finite if sides[at].is_training and sides[at].key is not None]
    return {(sides[at].name, rows.workers[at]): at for at in training}


def unrelated_outputs(step: StepView, memory: Memory) -> dict[Series, Association]:
    """Add the values of a step; return the losses whose outputs are unrelated to their targets.

    Outputs are compared with their targets and, by the permutation test, with those of other rows.
    The loss must compare the two by its name, and be the only loss of its worker: outputs of a
    discriminator are unrelated to their targets if the generator is good.

    Memory: `associations` of at most 32 losses, at the latest 5 steps with values.
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
        value: What was measured.
        threshold: What it was compared with.
        message: The finding in words.
        measure: Name of what was measured; empty for the measure of the rule.
    """

    value: float
    threshold: float
    message: str
    measure: str = ""

    @property
    def excess(self) -> float:
        """How far the value is from its threshold, in parts of that."""
        return abs(self.value - self.threshold) / (abs(self.threshold) or 1.0)


class CurveRule(Rule):
    """Judges numbers of a training run step by step, such as its losses.

    Curves of one worker are weighed against each other, as in an adversarial training. So a fault
    is reported only if all of them have it. Curves that begin at 0 have no scale and do not count.

    Attributes:
        noun: What the numbers are.
        measure: Name of what is measured.
        num_first: First numbers of a curve that are stored.
        spacing: Of so many steps only the first saved one counts.
        compares_together: Whether `_detect` compares the latest `patience` numbers with those
            before; otherwise it must return a finding `patience` times in a row.
        needs_single_curve: Whether workers with several curves are not judged.
        needs_targets: Whether losses of less than four targets are not judged: they scatter.
    """

    noun: ClassVar[str] = "losses"
    measure: ClassVar[str]
    num_first: ClassVar[int] = 5
    spacing: ClassVar[int] = 1
    compares_together: ClassVar[bool] = False
    needs_single_curve: ClassVar[bool] = False
    needs_targets: ClassVar[bool] = False

    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 3

    collections = saved_every(10, "losses")

    @property
    @abstractmethod
    def _window(self) -> tuple[int, int]:
        """Fewest numbers of a curve that are judged, and most latest numbers that are used."""

    def _points(self, step: StepView) -> Points:
        """Return the numbers of a step."""
        return step.fact(training_points)

    @abstractmethod
    def _detect(self, series: NumberSeries) -> Finding | None:
        """Return what is wrong with a curve, None if nothing is."""

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Add the numbers of a step to the curves, and judge these.

        Memory: `history`, the first and latest numbers of at most 32 curves.

        Raises:
            Missing: No curve is long enough.
        """
        if self.needs_targets and step.fact(are_few):
            return NotApplicable("losses of less than four targets scatter by nature")
        if not is_training(step):
            return NotApplicable(f"steps of mode {step.mode.name} are not training steps")
        points, history = self._points(step), self._history(memory)
        if memory.get("latest") == step.mode_step // self.spacing:
            return NotApplicable(f"only one of {self.spacing} steps is judged")
        memory["latest"] = step.mode_step // self.spacing
        added = history.add(points.values)
        memory["history"] = history.to_json()
        counts = {names: history.of(names).count for names in history.names}
        most, fewest = max(counts.values(), default=0), self._window[0]
        if most < fewest:
            raise Missing(f"only {most} of the {fewest} {self.noun} needed were saved so far")
        ready = [names for names in added if counts[names] >= fewest and names in points.at]
        curves = {names: history.of(names) for names in ready if history.of(names).start > 0}
        findings = {names: self._repeated(curve) for names, curve in curves.items()}
        sound = {names[1] for names, finding in findings.items() if finding is None}
        if self.needs_single_curve:
            workers = [worker for _, worker in findings]
            sound |= {worker for worker in workers if workers.count(worker) > 1}
        found = {names: each for names, each in findings.items() if each and names[1] not in sound}
        return self._worst(step, points, found) if found else Passed()

    def _history(self, memory: Memory) -> SeriesMemory:
        num_latest = self._window[1] + self.patience
        data = memory.get("history", {})
        return SeriesMemory(data, num_first=self.num_first, num_latest=num_latest)

    def _repeated(self, series: NumberSeries) -> Finding | None:
        """Return the finding of a curve if there was one at its numbers before, too."""
        for num in reversed(range(1 if self.compares_together else self.patience)):
            before = series.before(num)
            finding = self._detect(before) if before.count >= self._window[0] else None
            if finding is None:
                return None
        return finding

    def _worst(self, step: StepView, points: Points, found: Mapping[Series, Finding]) -> IssueFound:
        """Return the finding that is farthest from its threshold."""
        names = min(found, key=lambda names: (-found[names].excess, names))
        worst = found[names]
        measured = (worst.measure or self.measure, worst.value, worst.threshold)
        return finding(self, step, (points.rows, points.at[names]), measured, worst.message)
