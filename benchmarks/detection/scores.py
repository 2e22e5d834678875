"""From verdicts to scores: who found what, and who cried wolf."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.detection.faults import BY_CONSTRUCTION
from benchmarks.detection.fitting import FITTING
from benchmarks.detection.judging import Verdict
from benchmarks.detection.packs import class_of
from benchmarks.detection.program import HEALTHY
from benchmarks.detection.runs import Plan

__all__ = ["HARM", "FaultScore", "Harm", "Judged", "RuleScore", "by_fault", "by_rule", "harms"]

HARM = 1.25
"""How many times the healthy median error the median error with a fault must at least be."""


@dataclass(frozen=True)
class Judged:
    """A run and what every rule said of it.

    Attributes:
        plan: The run.
        error: Its validation error.
        verdicts: By rule.
    """

    plan: Plan
    error: float
    verdicts: Mapping[str, Verdict]

    def findings(self, rules: Iterable[str]) -> list[str]:
        """Return those of some rules that found anything."""
        return [name for name in rules if self.verdicts[name].step is not None]


@dataclass(frozen=True)
class RuleScore:
    """How one rule did.

    Attributes:
        rule: Its name.
        fitting: Number of runs with a fault that it fits.
        detected: In how many of these it found something.
        step: Median step of its first finding there, NaN without any.
        healthy: Number of healthy runs.
        false_alarms: In how many of these it found something.
        blind: Number of runs of which it could judge no step.
    """

    rule: str
    fitting: int
    detected: int
    step: float
    healthy: int
    false_alarms: int
    blind: int


@dataclass(frozen=True)
class FaultScore:
    """How one kind of fault was found in one program.

    Attributes:
        fault: The kind.
        program: Name of the program.
        runs: Number of runs with it.
        found: In how many a fitting rule found something.
        unfitting: In how many of the others some other rule found something.
        step: Median step of the first fitting finding, NaN without any.
        rules: Fitting rules by the number of runs in which they found something.
    """

    fault: str
    program: str
    runs: int
    found: int
    unfitting: int
    step: float
    rules: Mapping[str, int]


@dataclass(frozen=True)
class Harm:
    """What a fault does to the validation error of a program.

    Attributes:
        program: Name of the program.
        fault: The kind.
        healthy: Lowest, median and highest error of healthy runs.
        error: Median error with the fault.
        by_construction: Whether it harms without the error showing it.
    """

    program: str
    fault: str
    healthy: tuple[float, float, float]
    error: float
    by_construction: bool

    @property
    def is_clear(self) -> bool:
        """True if the error is above that of every healthy run, and clearly above their median."""
        _, middle, highest = self.healthy
        return self.by_construction or (self.error > highest and self.error >= HARM * middle)


def by_rule(runs: Sequence[Judged], rules: Iterable[str]) -> list[RuleScore]:
    """Return the score of each of some rules."""
    return [_rule_score(runs, rule) for rule in rules]


def by_fault(runs: Sequence[Judged], rules: Sequence[str]) -> list[FaultScore]:
    """Return how some rules together found each fault in each program."""
    groups = _grouped([run for run in runs if not run.plan.is_healthy], _fault_and_program)
    return [_fault_score(group, rules) for group in groups.values()]


def harms(runs: Sequence[Judged]) -> list[Harm]:
    """Return what each fault does in each program of which there are healthy runs, too."""
    groups = _grouped(runs, _fault_and_program)
    found = []
    for (fault, program), group in groups.items():
        healthy = groups.get((HEALTHY, program))
        if fault != HEALTHY and healthy is not None:
            errors = [run.error for run in healthy]
            spread = (min(errors), median(errors), max(errors))
            error = median(run.error for run in group)
            found.append(Harm(program, fault, spread, error, fault in BY_CONSTRUCTION))
    return found


def _rule_score(runs: Sequence[Judged], rule: str) -> RuleScore:
    fitting = [run for run in runs if class_of(rule) in FITTING.get(run.plan.fault, ())]
    healthy = [run for run in runs if run.plan.is_healthy]
    steps = [step for run in fitting if (step := run.verdicts[rule].step) is not None]
    return RuleScore(
        class_of(rule),
        len(fitting),
        len(steps),
        median(steps) if steps else math.nan,
        len(healthy),
        sum(bool(run.findings((rule,))) for run in healthy),
        sum(not run.verdicts[rule].evaluated for run in runs),
    )


def _fault_score(group: Sequence[Judged], rules: Sequence[str]) -> FaultScore:
    fault, program = _fault_and_program(group[0])
    fitting = [rule for rule in rules if class_of(rule) in FITTING[fault]]
    found = [run for run in group if run.findings(fitting)]
    firsts = [
        min(step for rule in fitting if (step := run.verdicts[rule].step) is not None)
        for run in found
    ]
    counts = {rule: sum(bool(run.findings((rule,))) for run in group) for rule in fitting}
    return FaultScore(
        fault,
        program,
        len(group),
        len(found),
        sum(bool(run.findings(rules)) for run in group if run not in found),
        median(firsts) if firsts else math.nan,
        {class_of(rule): count for rule, count in counts.items() if count},
    )


def _fault_and_program(run: Judged) -> tuple[str, str]:
    return run.plan.fault, run.plan.program


def _grouped(
    runs: Iterable[Judged], key: Callable[[Judged], tuple[str, str]]
) -> dict[tuple[str, str], list[Judged]]:
    groups: dict[tuple[str, str], list[Judged]] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return groups
