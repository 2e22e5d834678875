"""The base of rules that follow the losses of a training over many steps."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import IssueFound, NotApplicable, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import Memory, Rule
from rule_runtime.facts.evaluation_phases import loss_side, no_loss_saved, usual_names
from rule_runtime.facts.missing_reasons import why_no_loss
from rule_runtime.facts.selection import evidence, finite_means, is_training
from rule_runtime.numerics.binned_means import BinnedMeans
from rule_runtime.numerics.robust import noise
from rule_runtime.numerics.series_memory import NumberSeries, Series, SeriesMemory

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["Finding", "LossRule", "training_losses"]


_FEW: Final = 5
_FALLEN: Final = 0.1
_HALF: Final = 0.5
_NUM_NOISE: Final = 3.0


class Finding(NamedTuple):
    """What is wrong with one loss.

    Attributes:
        excess: How far beyond the threshold; the largest of a step is the evidence.
        value: What was measured.
        threshold: What it was compared with.
        message: The finding in words.
        remedy: What to try first; empty for what the rule says of all its findings.
        is_early: Whether it is too early to be told: it counts for `patience` only.
    """

    excess: float
    value: float
    threshold: float
    message: str
    remedy: str = ""
    is_early: bool = False


class LossRule(Rule):
    """Judges each training loss by its first and its latest numbers.

    A subclass sets the class attributes, may have a parameter `patience`, and answers in `judge`.
    The losses of EVAL and PREDICT steps are skipped, and so are XGBoost's of other data than
    what is trained on, and its metrics that are not known to fall. Of more than 32 losses the first
    that came are judged; the memory is as large however long the run.

    Attributes:
        measure: Name of what is measured.
        remedy: What to try first.
        num_first: How many first numbers of a loss are kept.
    """

    measure: ClassVar[str]
    remedy: ClassVar[str]
    num_first: ClassVar[int] = 5
    why_left_out: ClassVar[str] = ""

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

    def judge_named(
        self,
        name: str,  # noqa: ARG002
        series: NumberSeries,
        num_steps: int,
    ) -> Finding | None:
        """Return what is wrong with a loss, where its name matters; as `judge` else.

        Args:
            name: Name of the loss.
            series: Its numbers, at least `num_needed`.
            num_steps: Steps since the first one with a loss.
        """
        return self.judge(series, num_steps)

    def elapsed(self, step: StepView, memory: Memory) -> int:
        """Return how many steps the training had to show what it learns.

        Args:
            step: What was saved at the step.
            memory: `begin`, the first step with a loss.
        """
        return int(step.mode_step - memory["begin"])

    def left_out(self, step: StepView, losses: Collection[Series]) -> AbstractSet[Series]:  # noqa: ARG002
        """Return the losses of a step of which nothing must be judged.

        Args:
            step: What was saved at the step.
            losses: Names and workers of its losses of training.
        """
        return frozenset()

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Add the losses of the step to those seen before, and judge each of them.

        Args:
            step: What was saved at the step.
            memory: `begin`, the first step; `history`, the first and latest numbers of at most 32
                losses; `bin`, the losses that are averaged with coming ones: of fixed size.
        """
        if not is_training(step):
            return NotApplicable(f"a step of mode {step.mode.name} says nothing of the training")
        rows = step.tensors(collections=("losses",))
        means = finite_means(rows)
        present = training_losses(step, rows, means)
        if not present:
            return NotEvaluated(_why_none(step, rows, means))
        left_out = self.left_out(step, present)
        present = {names: at for names, at in present.items() if names not in left_out}
        if not present:
            return NotApplicable(f"the loss {min(rows.names)} need not fall: {self.why_left_out}")
        numbers = {names: float(means[at]) for names, at in present.items()}
        memory.setdefault("begin", step.mode_step)
        num_steps = self.elapsed(step, memory)
        if self.bin_steps > 1:
            bins = BinnedMeans(memory.get("bin", {}), self.bin_steps)
            numbers = bins.add(step.mode_step, numbers)
            memory["bin"] = bins.to_json()
            if not numbers:
                return NotEvaluated(self._why_open(memory))
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
                message=found[worst].message,
                remedy=found[worst].remedy or self.remedy,
            )
        )

    def _excused(self, history: SeriesMemory, worker: str) -> bool:
        """Return whether a worker has several losses, and one of them has fallen.

        Then the others may do what they like: they are weighed against it (the two sides of an
        adversarial training, the prior of a variational one).
        """
        several = [history.of(names) for names in history.names if names[1] == worker]
        return len(several) > 1 and any(_has_fallen(series) for series in several)

    def _judge_all(
        self, numbers: Mapping[Series, float], num_steps: int, memory: Memory
    ) -> tuple[dict[Series, Finding], str]:
        """Return the findings by loss, and the reason if no loss could be judged."""
        history = SeriesMemory(
            memory.get("history", {}), num_first=self.num_first, num_latest=self.num_latest
        )
        found = {}
        num_judged = most = 0
        added = history.add(numbers)
        of_worker = {worker: self._excused(history, worker) for _, worker in added}
        for names in added:
            series = history.of(names)
            most = max(most, series.count)
            if series.count < self.num_needed:
                continue
            num_judged += 1
            finding = None if of_worker[names[1]] else self.judge_named(names[0], series, num_steps)
            streak = history.streak(names, is_bad=finding is not None)
            if finding is not None and streak >= self.num_bad:
                found[names] = finding
        memory["history"] = history.to_json()
        if num_judged:
            return found, ""
        return found, self._why_few(most)

    def _why_few(self, count: int) -> str:
        """Return that there are too few numbers of a loss, and how many are needed."""
        if self.bin_steps == 1:
            return f"only {count} of the {self.num_needed} losses needed were saved so far"
        return (
            f"only {count} of the {self.num_needed} means needed, each of the losses of "
            f"{self.bin_steps} steps, are known so far"
        )

    def _why_open(self, memory: Memory) -> str:
        """Return why nothing is judged at a step whose losses are averaged with coming ones."""
        history = SeriesMemory(
            memory.get("history", {}), num_first=self.num_first, num_latest=self.num_latest
        )
        most = max((history.of(names).count for names in history.names), default=0)
        if most < self.num_needed:
            return self._why_few(most)
        return f"the losses of {self.bin_steps} steps are judged together, when later ones come"


def _why_none(step: StepView, rows: TensorRows, means: npt.NDArray[np.float64]) -> str:
    if not len(rows):
        return no_loss_saved(step)
    return why_no_loss(rows, means, "is no loss of training that should fall")


def _has_fallen(series: NumberSeries) -> bool:
    """Return whether the latest numbers are clearly below the first, or half of the very first.

    A loss that falls fast is low among its first few numbers already, and may come back a little:
    that of a discriminator does.
    """
    if series.count < 2 * _FEW:
        return False
    first, latest = series.first[:_FEW], series.latest[-_FEW:]
    now = float(np.median(latest))
    fall = float(np.median(first)) - now
    if float(latest.max()) < float(first.min()) and fall > _FALLEN * abs(float(np.median(first))):
        return True
    is_half = float(latest.min()) > 0 and now < _HALF * float(first[0])
    return is_half and float(first[0]) - now > _NUM_NOISE * noise(series.latest)


def training_losses(
    step: StepView, rows: TensorRows, means: npt.NDArray[np.float64]
) -> dict[Series, int]:
    """Return the rows of finite training losses by their `usual_names`, and worker.

    They are what should fall while a model learns.

    Args:
        step: A step of training.
        rows: Its losses [R].
        means: Their values [R].
    """
    found = {}
    names = usual_names(step, rows)
    for at in np.flatnonzero(np.isfinite(means)):
        key, of_training = loss_side(names[at], step.mode)
        if key is not None and of_training:
            found[names[at], rows.workers[at]] = int(at)
    return found
