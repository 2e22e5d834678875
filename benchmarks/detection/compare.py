"""Compare the findings of the pack `recommended` with frozen ones.

python -m benchmarks.detection.compare [--all] [--rule RULE] [--fault FAULT] [--jobs N]
python -m benchmarks.detection.compare --freeze-new

`frozen.jsonl` has one line per run: part, program, fault, seed and the step of each rule's first
finding; `--freeze-new` fills in findings that are null. Without `--all` a fixed sample is compared.
The command fails in one of four cases: a healthy run has a finding and had none; a rule raises an
error; fewer than 95 % of the faulty runs found before are found; a kind of fault that was found in
90 % of its runs is found in less than 85 %.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from benchmarks.detection.evaluated_runs import RUNS, evaluated_runs
from benchmarks.detection.fitting import FITTING
from benchmarks.detection.packs import class_of
from benchmarks.detection.plans import FROZEN, Plan, read_frozen, write_frozen

__all__ = ["Comparison", "compare", "is_sampled", "main"]

SAMPLE_EVERY: Final = 3
"""Share of runs in the sample: it takes a quarter of an hour on two cores with training."""
KEPT_SHARE: Final = 0.95
GOOD_KIND_SHARE: Final = 0.90
LOST_KIND_SHARE: Final = 0.85

Findings = Mapping[Plan, Mapping[str, int]]
"""For each run the step of each rule's first finding."""


@dataclass(frozen=True)
class Comparison:
    """Findings before and now, of the same runs.

    Attributes:
        before: The frozen findings.
        now: Today's findings.
        failures: Of each run in which a rule raised an error, the errors.
    """

    before: Findings
    now: Findings
    failures: Mapping[Plan, Sequence[str]] = field(default_factory=dict)

    @property
    def alarms(self) -> list[Plan]:
        """Healthy runs that have a finding and had none."""
        return [p for p in self.now if p.is_healthy and self.now[p] and not self.before[p]]

    @property
    def found_before(self) -> list[Plan]:
        """Faulty runs that a fitting rule found before."""
        return [plan for plan in self.before if _is_found(plan, self.before)]

    @property
    def lost(self) -> list[Plan]:
        """Those of `found_before` that no fitting rule finds today."""
        return [plan for plan in self.found_before if not _is_found(plan, self.now)]

    def share(self, fault: str, findings: Findings) -> float:
        """Return the share of a kind's runs that a fitting rule finds."""
        runs = [plan for plan in findings if plan.fault == fault]
        return sum(_is_found(plan, findings) for plan in runs) / len(runs)

    @property
    def kinds(self) -> list[str]:
        """The kinds of faults, in the order of the table of kinds."""
        present = {plan.fault for plan in self.now}
        return [fault for fault in FITTING if fault in present]

    @property
    def lost_kinds(self) -> list[str]:
        """Kinds that were found reliably and no longer are."""
        return [
            fault
            for fault in self.kinds
            if self.share(fault, self.before) >= GOOD_KIND_SHARE
            and self.share(fault, self.now) < LOST_KIND_SHARE
        ]

    @property
    def passes(self) -> bool:
        """True if nothing is lost that matters."""
        limit = (1 - KEPT_SHARE) * len(self.found_before)
        is_kept = len(self.lost) <= limit and not self.lost_kinds
        return is_kept and not self.alarms and not self.failures

    def as_text(self) -> str:
        """Return the comparison as lines for people."""
        healthy = [plan for plan in self.now if plan.is_healthy]
        faulty = [plan for plan in self.now if not plan.is_healthy]
        found = sum(_is_found(plan, self.now) for plan in faulty)
        before = len(self.found_before)
        kept = before - len(self.lost)
        lines = [
            f"healthy: {len(healthy)} runs, {len(self.alarms)} with a finding that had none",
            *(f"  {_name(plan)}: {', '.join(self.now[plan])}" for plan in self.alarms),
            f"faulty: {len(faulty)} runs, {before} found before, {found} now, {kept} in both",
            *(f"  lost: {_name(plan)}, was {_fitting(plan, self.before)}" for plan in self.lost),
        ]
        for plan, errors in self.failures.items():
            lines.append(f"  failed: {_name(plan)}: {'; '.join(errors)}")
        for fault in self.kinds:
            shares = (self.share(fault, self.before), self.share(fault, self.now))
            mark = "  LOST" if fault in self.lost_kinds else ""
            lines.append(f"  {fault:30} {shares[0]:6.1%} before, {shares[1]:6.1%} now{mark}")
        return "\n".join([*lines, "gate: " + ("passed" if self.passes else "FAILED")])


def compare(plans: Sequence[Plan], before: Findings, now: Findings) -> Comparison:
    """Return the comparison of some runs.

    Raises:
        KeyError: A run was not frozen.
    """
    return Comparison({plan: before[plan] for plan in plans}, {plan: now[plan] for plan in plans})


def main(given: Sequence[str] | None = None) -> int:
    """Compare or freeze; return the exit status: 1 if the gate fails."""
    arguments = _arguments(given)
    frozen = read_frozen(FROZEN)
    chosen = [plan for plan in frozen if plan.fault in (arguments.fault or [plan.fault])]
    if arguments.freeze or arguments.freeze_new:
        plans = [plan for plan in chosen if arguments.freeze or frozen[plan] is None]
        now, _ = _findings_today(plans, None, arguments.folder, arguments.jobs)
        write_frozen(frozen | now, FROZEN)
        return 0
    before = {plan: found for plan, found in frozen.items() if found is not None}
    planned = [plan for plan in chosen if arguments.all or is_sampled(plan)]
    plans = [plan for plan in planned if plan in before]
    print(f"{len(plans)} of {len(planned)} runs are frozen")
    now, failures = _findings_today(plans, arguments.rule, arguments.folder, arguments.jobs)
    if arguments.rule:
        now = {plan: _without(before[plan], arguments.rule) | found for plan, found in now.items()}
    comparison = replace(compare(plans, before, now), failures=failures)
    print(comparison.as_text())
    return 0 if comparison.passes else 1


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.detection.compare")
    parser.add_argument("--all", action="store_true", help="all runs, not only the sample")
    parser.add_argument("--freeze", action="store_true", help="freeze today's findings")
    parser.add_argument("--freeze-new", action="store_true", help="freeze findings that are null")
    parser.add_argument("--fault", action="append", help="only this fault, or `healthy`")
    parser.add_argument("--rule", action="append", help="evaluate this rule; others as frozen")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--folder", type=Path, default=RUNS, help="cache of runs")
    return parser.parse_args(given)


def _findings_today(
    plans: Sequence[Plan], rules: Sequence[str] | None, folder: Path, jobs: int
) -> tuple[dict[Plan, dict[str, int]], dict[Plan, list[str]]]:
    """Return the step of each rule's first finding, and the errors of rules, by run."""
    runs = evaluated_runs(plans, folder, jobs=jobs, only_packs=("recommended",), only_rules=rules)
    findings, failures = {}, {}
    for run in runs:
        findings[run.plan] = {
            class_of(key): verdict.step
            for key, verdict in run.verdicts.items()
            if verdict.step is not None
        }
        errors = [f"{class_of(key)}: {v.failure}" for key, v in run.verdicts.items() if v.failure]
        if errors:
            failures[run.plan] = errors
    return findings, failures


def _without(found: Mapping[str, int], rules: Sequence[str]) -> dict[str, int]:
    return {rule: step for rule, step in found.items() if rule not in rules}


def is_sampled(plan: Plan) -> bool:
    """Return whether a run is in the fixed sample."""
    digest = hashlib.sha256(_name(plan).encode()).digest()
    return int.from_bytes(digest[:4], "big") % SAMPLE_EVERY == 0


def _name(plan: Plan) -> str:
    return f"{plan.part}/{plan.program}/{plan.fault}"


def _fitting(plan: Plan, findings: Findings) -> str:
    rules = FITTING.get(plan.fault, ())
    return ", ".join(f"{rule} at {step}" for rule, step in findings[plan].items() if rule in rules)


def _is_found(plan: Plan, findings: Findings) -> bool:
    return bool(_fitting(plan, findings))


if __name__ == "__main__":
    sys.exit(main())
