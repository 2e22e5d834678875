"""The tables: as text, as Markdown, and as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, NamedTuple

from benchmarks.detection.packs import class_of, stopping
from benchmarks.detection.scores import FaultScore, Judged, by_fault, by_rule, harms

__all__ = ["Packs", "Table", "as_json", "summary", "tables"]

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
        told = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        told.insert(1, "  ".join("-" * width for width in widths))
        return "\n".join([self.title, "", *told, ""])

    def as_markdown(self) -> str:
        """Return the table in Markdown, with a heading."""
        lines = [self.head, ["---"] * len(self.head), *self.rows]
        told = [f"| {' | '.join(cells)} |" for cells in lines]
        return "\n".join([f"### {self.title}", "", *told, ""])


def tables(runs: Sequence[Judged], packs: Packs) -> list[Table]:
    """Return all tables of one part, each only if there is anything in it.

    Args:
        runs: The runs.
        packs: Keys of the rules of each pack.
    """
    found = [_healthy(runs, packs), _faults(runs, packs), _programs(runs, packs), _harm(runs)]
    found += [_rules(runs, pack, rules) for pack, rules in packs.items()]
    found += [_false_alarms(runs, packs), _missed(runs, packs)]
    return [table for table in found if table.rows]


def summary(runs: Sequence[Judged], packs: Packs, title: str) -> Table:
    """Return the few numbers that matter most.

    Args:
        runs: The runs of one part.
        packs: Keys of the rules of each pack.
        title: Title of the table.
    """
    healthy = [run for run in runs if run.plan.is_healthy]
    rows = []
    for pack, rules in packs.items():
        scores = by_fault(runs, rules)
        kinds: dict[str, list[FaultScore]] = {}
        for score in scores:
            kinds.setdefault(score.fault, []).append(score)
        shares = {
            k: sum(s.found for s in own) / sum(s.runs for s in own) for k, own in kinds.items()
        }
        below = ", ".join(f"{kind} {100 * s:.0f} %" for kind, s in shares.items() if s < _AIM)
        rows.append(
            (
                pack,
                *_alarms(healthy, {pack: rules})[1:],
                _share(sum(s.found for s in scores), sum(s.runs for s in scores)),
                _share(sum(share >= _AIM for share in shares.values()), len(shares)),
                below,
            )
        )
    head = (
        "pack",
        "healthy runs with any finding",
        "healthy runs stopped",
        "faulty runs found",
        "kinds of faults found in 90 % of their runs",
        "the others",
    )
    return Table(title, head, rows)


def as_json(runs: Sequence[Judged], packs: Packs) -> dict[str, Any]:
    """Return all scores, and the verdicts they are made of, as JSON."""
    by_pack = {
        pack: {
            "rules": [asdict(score) for score in by_rule(runs, rules)],
            "faults": [asdict(score) for score in by_fault(runs, rules)],
        }
        for pack, rules in packs.items()
    }
    harm = [asdict(one) | {"is_clear": one.is_clear} for one in harms(runs)]
    return {"packs": by_pack, "harm": harm, "runs": [asdict(run) for run in runs]}


def _healthy(runs: Sequence[Judged], packs: Packs) -> Table:
    healthy = [run for run in runs if run.plan.is_healthy]
    rows = []
    for program in dict.fromkeys(run.plan.program for run in healthy):
        own = [run for run in healthy if run.plan.program == program]
        rows.append((program, *_alarms(own, packs)))
    if rows:
        rows.append(("**all**", *_alarms(healthy, packs)))
    told = [(f"with a finding of `{pack}`", "that stops") for pack in packs]
    head = ("program", "runs", *(cell for pair in told for cell in pair))
    return Table("Healthy runs", head, rows)


def _alarms(runs: Sequence[Judged], packs: Packs) -> list[str]:
    told = [str(len(runs))]
    for pack, rules in packs.items():
        told.append(_share(sum(bool(run.findings(rules)) for run in runs), len(runs)))
        stops = stopping(pack, rules)
        stopped = "-" if stops is None else str(sum(bool(run.findings(stops)) for run in runs))
        told.append(stopped)
    return told


def _faults(runs: Sequence[Judged], packs: Packs) -> Table:
    scores = {pack: by_fault(runs, rules) for pack, rules in packs.items()}
    rows = []
    for fault in sorted({score.fault for found in scores.values() for score in found}):
        own = {p: [s for s in found if s.fault == fault] for p, found in scores.items()}
        first = next(iter(own.values()), [])
        num_runs = sum(score.runs for score in first)
        found = [_share(sum(s.found for s in of_pack), num_runs) for of_pack in own.values()]
        rows.append((fault, str(len(first)), str(num_runs), *found))
    head = ("fault", "programs", "runs", *(f"found by `{pack}`" for pack in packs))
    return Table("Faults found by a fitting rule", head, rows)


def _programs(runs: Sequence[Judged], packs: Packs) -> Table:
    rows = []
    for pack, rules in packs.items():
        for score in sorted(by_fault(runs, rules), key=lambda s: (s.fault, s.program)):
            step = "" if math.isnan(score.step) else f"{score.step:.0f}"
            found = _share(score.found, score.runs)
            rows.append((pack, score.fault, score.program, found, step, _by(score)))
    head = ("pack", "fault", "program", "found", "median step", "by (runs)")
    return Table("Faults by program", head, rows)


def _by(score: FaultScore) -> str:
    rules = sorted(score.rules.items(), key=lambda item: (-item[1], item[0]))
    told = [f"{rule} {count}" for rule, count in rules]
    if score.unfitting:
        told.append(f"(only by rules that do not fit: {score.unfitting})")
    return ", ".join(told)


def _harm(runs: Sequence[Judged]) -> Table:
    rows = []
    for harm in sorted(harms(runs), key=lambda one: (one.program, one.fault)):
        low, middle, high = harm.healthy
        clear = "by construction" if harm.by_construction else "yes" if harm.is_clear else "**no**"
        healthy = f"{middle:.3g} [{low:.3g} .. {high:.3g}]"
        rows.append((harm.program, harm.fault, healthy, f"{harm.error:.3g}", clear))
    head = ("program", "fault", "error healthy [min .. max]", "with the fault", "clearly worse")
    return Table("What the faults do to the validation error (medians)", head, rows)


def _rules(runs: Sequence[Judged], pack: str, rules: Sequence[str]) -> Table:
    rows = [
        (
            score.rule,
            str(score.detected),
            str(score.fitting - score.detected),
            "" if math.isnan(score.step) else f"{score.step:.0f}",
            _share(score.false_alarms, score.healthy),
            str(score.blind),
        )
        for score in by_rule(runs, rules)
    ]
    head = (
        "rule",
        "detected",
        "missed",
        "median step",
        "false alarms in healthy runs",
        "runs it could not judge",
    )
    return Table(f"Rules of the pack `{pack}`", head, rows)


def _false_alarms(runs: Sequence[Judged], packs: Packs) -> Table:
    rows = []
    for run in runs:
        for pack, rules in packs.items():
            if not run.plan.is_healthy or pack == "original":
                continue
            for rule in run.findings(rules):
                verdict = run.verdicts[rule]
                name = f"{run.plan.program} {run.plan.seed}"
                rows.append((pack, name, class_of(rule), str(verdict.step), verdict.sentence))
    head = ("pack", "program and seed", "rule", "step", "finding")
    return Table("False alarms", head, rows)


def _missed(runs: Sequence[Judged], packs: Packs) -> Table:
    rows = []
    for pack, rules in packs.items():
        for score in by_fault(runs, rules):
            if pack == "original" or score.found == score.runs:
                continue
            others = {
                class_of(rule)
                for run in runs
                if (run.plan.fault, run.plan.program) == (score.fault, score.program)
                for rule in run.findings(rules)
            }
            missed = _share(score.runs - score.found, score.runs)
            told = ", ".join(sorted(others - set(score.rules)))
            rows.append((pack, score.fault, score.program, missed, told))
    head = ("pack", "fault", "program", "missed", "rules that do not fit and found something")
    return Table("Missed", head, rows)


def _share(count: int, total: int) -> str:
    return f"{count} of {total} ({100 * count / total:.0f} %)" if total else "-"
