"""The base class of rules for curves of a run, such as its losses."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, NamedTuple, Protocol

from rule_runtime.engine.findings import finding
from rule_runtime.engine.needs import Needs
from rule_runtime.engine.outcome import IssueFound, NotApplicable, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, Memory, Rule, Unit
from rule_runtime.engine.selection import saved_every
from rule_runtime.numerics.series_memory import NumberSeries, Series, SeriesMemory
from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["CurveRule", "Finding", "Points"]


class Points(NamedTuple):
    """The data that a step adds to curves.

    Attributes:
        rows: Tensors of the step [R].
        at: The row that a finding names, for each curve.
        values: The number of this step, for each curve.
        batch: Rows of the batch whose mean the numbers are; None if unknown.
    """

    rows: TensorRows
    at: dict[Series, int]
    values: dict[Series, float]
    batch: float | None = None


class PointsOfStep(Protocol):
    """A fact with the numbers of a step."""

    def __call__(self, step: StepView, /) -> Points: ...


class Finding(NamedTuple):
    """A fault in one curve; an empty measure and an empty remedy are those of the rule."""

    value: float
    threshold: float
    message: str
    measure: str = ""
    remedy: str = ""

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
        steps_apart: Steps between two of `patience` findings in a row; 0 for any number.
        points: The fact with the numbers of a step.
    """

    noun: ClassVar[str] = "loss"
    measure: ClassVar[str]
    num_first: ClassVar[int] = 5
    spacing: ClassVar[int] = 1
    compares_together: ClassVar[bool] = False
    needs_single_curve: ClassVar[bool] = False
    steps_apart: ClassVar[int] = 0
    points: ClassVar[PointsOfStep]

    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 3

    collections = saved_every(10, "losses")
    only_training = "steps of mode {} are not training steps"

    def needs(self) -> Needs:
        """Return the length of a curve from which a fault of all its numbers is reported."""
        is_one = self.compares_together and not self.steps_apart
        num_in_a_row = 1 if is_one else self.patience
        return Needs(elements=self._window[0] + num_in_a_row - 1, noun=self.noun)

    @property
    @abstractmethod
    def _window(self) -> tuple[int, int]:
        """Minimum length of a curve, and maximum number of latest numbers that are used."""

    @abstractmethod
    def _detect(self, series: NumberSeries) -> Finding | None:
        """Return the fault of a curve; None if there is none."""

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Add the numbers of a step to the curves, and evaluate these.

        Memory: `history`, the first and latest numbers of at most 32 curves; `rows` of a batch;
        `steps`, the latest ones.

        Raises:
            NotEnough: No curve is long enough.
        """
        points, history = self._points_of(step), self._history(memory)
        if memory.get("latest") == step.mode_step // self.spacing:
            return NotApplicable(f"only one of {self.spacing} steps is evaluated")
        memory["latest"] = step.mode_step // self.spacing
        if self.steps_apart:
            memory["steps"] = [*memory.get("steps", []), step.mode_step][-self.patience :]
        added = history.add(points.values)
        counts = {names: history.of(names).count for names in history.names}
        most, fewest = max(counts.values(), default=0), self._window[0]
        if most < fewest:
            raise self.needs().too_few(most)
        ready = [names for names in added if counts[names] >= fewest and names in points.at]
        rows = memory["rows"] = points.batch or memory.get("rows")
        series = {names: replace(history.of(names), rows=rows or math.nan) for names in ready}
        curves = {names: each for names, each in series.items() if each.start > 0}
        findings = {names: self._repeated(curve) for names, curve in curves.items()}
        sound = {names[1] for names, finding in findings.items() if finding is None}
        if self.needs_single_curve:
            workers = [worker for _, worker in findings]
            sound |= {worker for worker in workers if workers.count(worker) > 1}
        found = {names: each for names, each in findings.items() if each and names[1] not in sound}
        if self.steps_apart and not self._have_lasted(step, memory, bool(found)) and found:
            return Passed()
        if found:
            return self._worst(step, points, found)
        needs = self.needs()
        if most < needs.elements:
            return NotEvaluated(str(needs.too_few(most)), needs_more=True)
        return Passed()

    def _points_of(self, step: StepView) -> Points:
        return step.fact(type(self).points)

    def _history(self, memory: Memory) -> SeriesMemory:
        num_latest = self._window[1] + self.patience
        return SeriesMemory(memory, "history", num_first=self.num_first, num_latest=num_latest)

    def _have_lasted(self, step: StepView, memory: Memory, is_found: bool) -> bool:
        """Return whether findings in a row are as many steps apart as required.

        Memory: `since`, the first of the saved steps in a row that are faulty.
        """
        if not is_found:
            memory.pop("since", None)
            return False
        since = memory.setdefault("since", memory["steps"][0])
        return bool(step.mode_step - since >= self._least_steps(step.mode_step))

    def _least_steps(self, num_steps: int) -> float:  # noqa: ARG002
        """Return the steps that a fault must last after this many training steps."""
        return self.steps_apart * (self.patience - 1)

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
        row = points.rows, points.at[names]
        return finding(self, step, row, measured, worst.message, remedy=worst.remedy)
