"""Training losses of a run, step by step: what rules about loss curves judge."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rule_runtime.engine.outcome import (
    IssueFound,
    NotApplicable,
    NotEvaluated,
    Outcome,
    Passed,
)
from rule_runtime.facts.constant_targets import with_constant_targets
from rule_runtime.facts.loss_sides import loss_side, usual_names
from rule_runtime.facts.missing import missing_counted_loss, missing_loss
from rule_runtime.facts.selection import evidence, finite_means, is_training
from rule_runtime.numerics.binned_means import BinnedMeans
from rule_runtime.numerics.robust import noise
from rule_runtime.numerics.series_memory import NumberSeries, Series, SeriesMemory

if TYPE_CHECKING:
    from rule_runtime.engine.rule import Memory
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["CurveTest", "Finding", "TrainingLosses", "judge_curves", "training_losses"]

_NUM_LEVEL: Final = 5
"""Latest losses whose median is the level of a loss."""

_FALLEN: Final = 0.1
"""Share of its beginning by which a loss has fallen clearly."""

_NUM_NOISE: Final = 3.0
"""Standard deviations of the noise by which a loss has fallen clearly."""


class Finding(NamedTuple):
    """What is wrong with one loss.

    Attributes:
        excess: How far beyond the threshold; the largest of a step is reported.
        value: What was measured.
        threshold: What it was compared with.
        message: The finding in words.
        remedy: What to try first; empty for the remedy of the rule.
        is_early: Whether it is too early to report it: it counts for `patience` only.
    """

    excess: float
    value: float
    threshold: float
    message: str
    remedy: str = ""
    is_early: bool = False


@dataclass(frozen=True, kw_only=True)
class CurveTest:
    """A test of loss curves.

    Attributes:
        detect: Returns what is wrong with a loss, None if nothing is.
        measure: Name of what is measured.
        remedy: What to try first.
        num_latest: Latest losses that the test gets.
        num_needed: Losses without which nothing is tested.
        num_first: First losses that the test gets.
        patience: How often in a row the test must be positive.
        bin_steps: Steps whose losses are averaged to one number.
    """

    detect: Callable[[NumberSeries], Finding | None]
    measure: str
    remedy: str
    num_latest: int
    num_needed: int
    num_first: int = 5
    patience: int = 1
    bin_steps: int = 1


class TrainingLosses:
    """The finite training losses of a step; a fact.

    Attributes:
        rows: All losses of the step [R].
        at: The row of each training loss, by its usual name and its worker.
        values: The value of each.

    Args:
        step: A step of training.

    Raises:
        Missing: No training loss was saved, or none is finite.
    """

    def __init__(self, step: StepView) -> None:
        self.rows = step.tensors(collections=("losses",))
        means = finite_means(self.rows)
        self.at = training_losses(step, self.rows, means)
        self.values = {names: float(means[at]) for names, at in self.at.items()}
        if not len(self.rows):
            raise missing_loss(step)
        if not self.at:
            raise missing_counted_loss(self.rows, means, "is no training loss that should fall")


def training_losses(
    step: StepView, rows: TensorRows, means: npt.NDArray[np.float64]
) -> dict[Series, int]:
    """Return the rows of finite training losses by their `usual_names`, and worker.

    Validation losses and metrics that should grow are left out.

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


def judge_curves(step: StepView, memory: Memory, test: CurveTest) -> Outcome:
    """Add the training losses of a step to those before, and test each.

    Losses whose targets are all the same need not fall and are not tested, nor are the losses of a
    worker one of which fell clearly: several losses are weighed against each other.

    Args:
        step: What was saved at the step.
        memory: `history`: the first and latest numbers of at most 32 losses; `bin`: the losses that
            are averaged with later ones.
        test: The test.

    Raises:
        Missing: No training loss was saved.
    """
    if not is_training(step):
        return NotApplicable(f"steps of mode {step.mode.name} are not training steps")
    losses = step.fact(TrainingLosses)
    constant = with_constant_targets(step, losses.at)
    values = {names: value for names, value in losses.values.items() if names not in constant}
    if not values:
        return NotApplicable(f"the targets of {min(losses.rows.names)} are all the same")
    history = SeriesMemory(
        memory.get("history", {}), num_first=test.num_first, num_latest=test.num_latest
    )
    added = history.add(_binned(step, values, memory, test.bin_steps))
    ready = [names for names in added if history.of(names).count >= test.num_needed]
    found = {}
    for names in ready:
        finding = None if _is_weighed(history, names[1]) else test.detect(history.of(names))
        num_bad = history.streak(names, is_bad=finding is not None)
        if finding is not None and num_bad >= test.patience and names in losses.at:
            found[names] = finding
    memory["history"] = history.to_json()
    if not ready:
        return NotEvaluated(_why_none(history, test))
    return _worst(step, losses, found, test) if found else Passed()


def _binned(
    step: StepView, values: Mapping[Series, float], memory: Memory, bin_steps: int
) -> Mapping[Series, float]:
    """Return the means of the bin that ended with the step; the values if bins are of one step."""
    if bin_steps == 1:
        return values
    bins = BinnedMeans(memory.get("bin", {}), bin_steps)
    means = bins.add(step.mode_step, values)
    memory["bin"] = bins.to_json()
    return means


def _is_weighed(history: SeriesMemory, worker: str) -> bool:
    """Return whether a worker has several losses, one of which has fallen clearly.

    Such are the two sides of an adversarial training, and the prior of a variational one.
    """
    several = [history.of(names) for names in history.names if names[1] == worker]
    return len(several) > 1 and any(_has_fallen(series) for series in several)


def _has_fallen(series: NumberSeries) -> bool:
    start = float(max(series.first[0], np.median(series.first)))
    fall = start - float(np.median(series.latest[-_NUM_LEVEL:]))
    least = max(_FALLEN * abs(start), _NUM_NOISE * noise(series.latest))
    return series.count >= 2 * _NUM_LEVEL and fall > least


def _why_none(history: SeriesMemory, test: CurveTest) -> str:
    most = max((history.of(names).count for names in history.names), default=0)
    if test.bin_steps == 1:
        return f"only {most} of the {test.num_needed} losses needed were saved so far"
    if most >= test.num_needed:
        return f"the losses of {test.bin_steps} steps are judged together, when later ones come"
    return (
        f"only {most} of the {test.num_needed} means needed, each of the losses of "
        f"{test.bin_steps} steps, are known so far"
    )


def _worst(
    step: StepView, losses: TrainingLosses, found: Mapping[Series, Finding], test: CurveTest
) -> IssueFound:
    names = min(found, key=lambda names: (-found[names].excess, names))
    finding = found[names]
    return IssueFound(
        evidence(
            step,
            losses.rows,
            losses.at[names],
            measure=test.measure,
            value=finding.value,
            threshold=finding.threshold,
            message=finding.message,
            remedy=finding.remedy or test.remedy,
        )
    )
