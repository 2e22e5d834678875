"""From verdicts to scores: detected faults, and what faults do to the validation error."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.detection.evaluation import Verdict
from benchmarks.detection.fitting import BY_CONSTRUCTION, FITTING
from benchmarks.detection.packs import class_of
from benchmarks.detection.plans import Plan
from benchmarks.detection.program import HEALTHY

__all__ = ["HARM", "EvaluatedRun", "FaultScore", "Harm", "by_fault", "harms"]

HARM = 1.25
"""Least ratio of the median error with a fault to the healthy median error."""


@dataclass(frozen=True)
class EvaluatedRun:
    """A run and the verdict of every rule.

    Attributes:
        plan: The run.
        error: Its validation error; NaN if its program measures none.
        verdicts: By rule.
    """

    plan: Plan
    error: float
    verdicts: Mapping[str, Verdict]

    def findings(self, rules: Iterable[str]) -> list[str]:
        """Return those of some rules that have a finding."""
        return [name for name in rules if self.verdicts[name].step is not None]

    def is_stopped(self, rules: Iterable[str]) -> bool:
        """Return whether one of some rules has a fatal finding."""
        found = (self.verdicts[name].evidence for name in rules)
        return any(evidence is not None and evidence.is_fatal for evidence in found)


@dataclass(frozen=True)
class FaultScore:
    """How one kind of fault was found in one program.

    Attributes:
        fault: The kind.
        program: Name of the program.
        runs: Number of runs with it.
        found: Number of runs with a finding of a fitting rule.
        step: Median step of the first fitting finding, NaN without any.
        others: Rules that do not fit and have a finding.
    """

    fault: str
    program: str
    runs: int
    found: int
    step: float
    others: frozenset[str]


@dataclass(frozen=True)
class Harm:
    """What a fault does to the validation error of a program.

    Attributes:
        program: Name of the program.
        fault: The kind.
        healthy: Lowest, median and highest error of healthy runs.
        error: Median error with the fault.
    """

    program: str
    fault: str
    healthy: tuple[float, float, float]
    error: float

    @property
    def is_clear(self) -> bool:
        """True if the error is above that of every healthy run, and clearly above their median."""
        _, middle, highest = self.healthy
        is_worse = self.error > highest and self.error >= HARM * middle
        return self.fault in BY_CONSTRUCTION or is_worse


def by_fault(runs: Sequence[EvaluatedRun], rules: Sequence[str]) -> list[FaultScore]:
    """Return how some rules together found each fault in each program."""
    groups = _by_fault_and_program([run for run in runs if not run.plan.is_healthy])
    return [_fault_score(group, rules) for group in groups.values()]


def harms(runs: Sequence[EvaluatedRun]) -> list[Harm]:
    """Return the harm of each fault in each program whose healthy runs measure an error."""
    groups = _by_fault_and_program(runs)
    found = []
    for (fault, program), group in groups.items():
        errors = [run.error for run in groups.get((HEALTHY, program), ())]
        if fault != HEALTHY and errors and not any(map(math.isnan, errors)):
            spread = (min(errors), median(errors), max(errors))
            found.append(Harm(program, fault, spread, median(run.error for run in group)))
    return found


def _fault_score(group: Sequence[EvaluatedRun], rules: Sequence[str]) -> FaultScore:
    plan = group[0].plan
    fitting = [rule for rule in rules if class_of(rule) in FITTING[plan.fault]]
    found = [run for run in group if run.findings(fitting)]
    firsts = [
        min(step for rule in fitting if (step := run.verdicts[rule].step) is not None)
        for run in found
    ]
    others = {class_of(rule) for run in group for rule in run.findings(rules)}
    return FaultScore(
        plan.fault,
        plan.program,
        len(group),
        len(found),
        median(firsts) if firsts else math.nan,
        frozenset(others - set(FITTING[plan.fault])),
    )


def _by_fault_and_program(
    runs: Iterable[EvaluatedRun],
) -> dict[tuple[str, str], list[EvaluatedRun]]:
    groups: dict[tuple[str, str], list[EvaluatedRun]] = {}
    for run in runs:
        groups.setdefault((run.plan.fault, run.plan.program), []).append(run)
    return groups
