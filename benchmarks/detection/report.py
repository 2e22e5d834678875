"""The tables of one part as text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from benchmarks.detection.packs import class_of
from benchmarks.detection.scores import EvaluatedRun, FaultScore, by_fault, harms

__all__ = ["Packs", "Table", "share", "tables"]

_AIM: Final = 0.9
"""Share of a fault's runs in which it should be found."""
Packs = Mapping[str, Sequence[str]]
"""Keys of the rules of each pack."""


class Table(NamedTuple):
    """A table, with a title."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    def as_text(self) -> str:
        """Return the table for a terminal."""
        lines = [self.head, *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        shown = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        shown.insert(1, "  ".join("-" * width for width in widths))
        return "\n".join([self.title, "", *shown, ""])


def tables(runs: Sequence[EvaluatedRun], packs: Packs) -> list[Table]:
    """Return all tables of one part that have rows."""
    scores = {pack: by_fault(runs, rules) for pack, rules in packs.items()}
    found = [_summary(runs, packs, scores), _faults(scores), _harm(runs)]
    found += [_false_alarms(runs, packs), _missed(scores)]
    return [table for table in found if table.rows]


def _summary(
    runs: Sequence[EvaluatedRun], packs: Packs, scores: Mapping[str, Sequence[FaultScore]]
) -> Table:
    healthy = [run for run in runs if run.plan.is_healthy]
    rows = []
    for pack, rules in packs.items():
        alarms = sum(bool(run.findings(rules)) for run in healthy)
        stopped = str(sum(run.is_stopped(rules) for run in healthy))
        shares = {
            fault: sum(s.found for s in own) / sum(s.runs for s in own)
            for fault, own in _by_kind(scores[pack]).items()
        }
        below = ", ".join(f"{kind} {100 * s:.0f} %" for kind, s in shares.items() if s < _AIM)
        found, total = sum(s.found for s in scores[pack]), sum(s.runs for s in scores[pack])
        kinds = share(sum(share >= _AIM for share in shares.values()), len(shares))
        alarmed = share(alarms, len(healthy))
        rows.append((pack, alarmed, stopped, share(found, total), kinds, below))
    head = (
        "pack",
        "healthy runs with a finding",
        "healthy runs stopped",
        "faulty runs found",
        "kinds found in 90 % of their runs",
        "the others",
    )
    return Table("In short", head, rows)


def _by_kind(scores: Sequence[FaultScore]) -> dict[str, list[FaultScore]]:
    kinds: dict[str, list[FaultScore]] = {}
    for score in scores:
        kinds.setdefault(score.fault, []).append(score)
    return kinds


def _faults(scores: Mapping[str, Sequence[FaultScore]]) -> Table:
    rows = []
    for pack, of_pack in scores.items():
        for fault, own in sorted(_by_kind(of_pack).items()):
            found = share(sum(s.found for s in own), sum(s.runs for s in own))
            rows.append((pack, fault, str(len(own)), found))
    head = ("pack", "fault", "programs", "runs found")
    return Table("Faults found by a fitting rule", head, rows)


def _harm(runs: Sequence[EvaluatedRun]) -> Table:
    rows = []
    for harm in sorted(harms(runs), key=lambda one: (one.program, one.fault)):
        low, middle, high = harm.healthy
        healthy = f"{middle:.3g} [{low:.3g} .. {high:.3g}]"
        clear = "yes" if harm.is_clear else "NO"
        rows.append((harm.program, harm.fault, healthy, f"{harm.error:.3g}", clear))
    head = ("program", "fault", "error healthy [min .. max]", "with the fault", "clearly worse")
    return Table("Median validation errors", head, rows)


def _false_alarms(runs: Sequence[EvaluatedRun], packs: Packs) -> Table:
    rows = []
    for run in (run for run in runs if run.plan.is_healthy):
        name = f"{run.plan.program} {run.plan.seed}"
        for pack, rules in packs.items():
            for rule in run.findings(rules):
                verdict = run.verdicts[rule]
                sentence = "" if verdict.evidence is None else verdict.evidence.sentence
                rows.append((pack, name, class_of(rule), str(verdict.step), sentence))
    head = ("pack", "program and seed", "rule", "step", "finding")
    return Table("False alarms", head, rows)


def _missed(scores: Mapping[str, Sequence[FaultScore]]) -> Table:
    rows = []
    for pack, of_pack in scores.items():
        for score in (score for score in of_pack if score.found < score.runs):
            missed = share(score.runs - score.found, score.runs)
            step = "" if math.isnan(score.step) else f"{score.step:.0f}"
            others = ", ".join(sorted(score.others))
            rows.append((pack, score.fault, score.program, missed, step, others))
    head = ("pack", "fault", "program", "missed", "found at", "rules that do not fit")
    return Table("Missed", head, rows)


def share(count: int, total: int) -> str:
    """Return a share in words."""
    return f"{count} of {total} ({100 * count / total:.0f} %)" if total else "-"
