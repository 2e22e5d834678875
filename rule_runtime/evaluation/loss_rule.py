"""The base of rules that follow the losses of a training over many steps."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.evaluation.outcome import IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.evaluation.rule import Memory, Rule
from rule_runtime.evaluation.selection import evidence, finite_means, is_training
from rule_runtime.numerics.binned_means import BinnedMeans
from rule_runtime.numerics.series_memory import NumberSeries, Series, SeriesMemory

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["Finding", "LossRule"]


class Finding(NamedTuple):
    """What is wrong with one loss.

    Attributes:
        excess: How far beyond the threshold; the largest of a step is the evidence.
        value: What was measured.
        threshold: What it was compared with.
        told: The finding in words.
    """

    excess: float
    value: float
    threshold: float
    told: str


class LossRule(Rule):
    """Judges each training loss by its first and its latest numbers.

    A subclass sets the class attributes, may have a parameter `patience`, and answers in `judge`.
    The losses of EVAL and PREDICT steps are passed over. Of more than 32 losses the first that
    came are judged; the memory is as large however long the run.

    Attributes:
        measure: Name of what is measured.
        remedy: What to try first.
        num_first: How many first numbers of a loss are kept.
    """

    measure: ClassVar[str]
    remedy: ClassVar[str]
    num_first: ClassVar[int] = 5

    collections = (CollectionConfig("losses", {"save_interval": "10"}),)

    @property
    @abstractmethod
    def num_latest(self) -> int:
        """How many latest numbers of a loss are kept."""

    @property
    @abstractmethod
    def num_needed(self) -> int:
        """How many numbers of a loss there must be before it is judged."""

    @property
    def bin_steps(self) -> int:
        """Steps whose losses are averaged to one number."""
        return 1

    @property
    def num_bad(self) -> int:
        """How often in a row a loss must be found bad."""
        return int(getattr(self, "patience", 1))

    @abstractmethod
    def judge(self, series: NumberSeries, num_steps: int) -> Finding | None:
        """Return what is wrong with a loss, None if nothing is.

        Args:
            series: Its numbers, at least `num_needed`.
            num_steps: Steps since the first one with a loss.
        """

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Add the losses of the step to those seen before, and judge each of them.

        Args:
            step: What was saved at the step.
            memory: `begin`, the first step; `history`, the first and latest numbers of at most 32
                losses; `bin`, the losses that are averaged with coming ones: of fixed size.
        """
        if not is_training(step):
            return NotEvaluated(f"a step of mode {step.mode.name} says nothing of the training")
        rows = step.tensors(collections=("losses",))
        if not len(rows):
            return NotEvaluated("no loss was saved")
        means = finite_means(rows)
        present = {
            (rows.names[at], rows.workers[at]): int(at) for at in np.flatnonzero(np.isfinite(means))
        }
        if not present:
            return NotEvaluated(f"the loss {min(rows.names)} is not finite")
        numbers = {names: float(means[at]) for names, at in present.items()}
        memory.setdefault("begin", step.mode_step)
        if self.bin_steps > 1:
            bins = BinnedMeans(memory.get("bin", {}), self.bin_steps)
            numbers = bins.add(step.mode_step, numbers)
            memory["bin"] = bins.to_json()
            if not numbers:
                return NotEvaluated(f"the losses of {self.bin_steps} steps are judged together")
        num_steps = step.mode_step - memory["begin"]
        found, reason = self._judge_all(numbers, num_steps, memory)
        found = {names: finding for names, finding in found.items() if names in present}
        if not found:
            return NotEvaluated(reason) if reason else Passed()
        worst = min(found, key=lambda names: (-found[names].excess, names))
        return IssueFound(
            evidence(
                step,
                rows,
                present[worst],
                measure=self.measure,
                value=found[worst].value,
                threshold=found[worst].threshold,
                told=found[worst].told,
                remedy=self.remedy,
            )
        )

    def _judge_all(
        self, numbers: Mapping[Series, float], num_steps: int, memory: Memory
    ) -> tuple[dict[Series, Finding], str]:
        """Return the findings by loss, and the reason if no loss could be judged."""
        history = SeriesMemory(
            memory.get("history", {}), num_first=self.num_first, num_latest=self.num_latest
        )
        found = {}
        num_judged = most = 0
        for names in history.add(numbers):
            series = history.of(names)
            most = max(most, series.count)
            if series.count < self.num_needed:
                continue
            num_judged += 1
            finding = self.judge(series, num_steps)
            streak = history.streak(names, is_bad=finding is not None)
            if finding is not None and streak >= self.num_bad:
                found[names] = finding
        memory["history"] = history.to_json()
        if num_judged:
            return found, ""
        return found, f"only {most} of the {self.num_needed} losses needed were saved so far"
