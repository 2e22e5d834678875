"""Train and judge many runs, several processes at a time."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from benchmarks.detection.judging import Verdict, judge
from benchmarks.detection.packs import class_of, packs
from benchmarks.detection.runs import Plan, obtain
from benchmarks.detection.scores import Judged
from rule_runtime.engine.rule import Rule

__all__ = ["RUNS", "judged_runs"]

RUNS: Final = Path(tempfile.gettempdir()) / "stepwatch-detection"
"""Where runs and verdicts are kept by default."""


def judged_runs(
    plans: Sequence[Plan],
    root: Path = RUNS,
    *,
    jobs: int = 2,
    only_packs: Sequence[str] | None = None,
    only_rules: Sequence[str] | None = None,
    again: bool = False,
    is_judged: bool = True,
) -> list[Judged]:
    """Return runs with the verdicts of all rules.

    Args:
        plans: The runs.
        root: Where runs and verdicts are kept.
        jobs: Number of processes.
        only_packs: Names of the packs that judge; None for all.
        only_rules: Names of the rules that judge; None for all of the packs.
        again: Whether runs are trained and judged again.
        is_judged: False to train only.
    """
    chosen = {
        pack: {key: own[key] for key in own if class_of(key) in (only_rules or [class_of(key)])}
        for pack, own in packs(only_packs).items()
    }
    work = partial(_judge_one, root=root, again=again, chosen=chosen, is_judged=is_judged)
    if jobs == 1:
        return list(map(work, plans))
    # Programs use torch, whose threads do not survive a fork.
    with ProcessPoolExecutor(jobs, get_context("spawn"), _be_quiet) as pool:
        return list(pool.map(work, plans))


def _be_quiet() -> None:
    os.nice(10)
    # Rules of all packs see all runs: the tables show what they cannot judge.
    logging.disable(logging.WARNING)


def _judge_one(
    plan: Plan,
    *,
    root: Path,
    again: bool,
    chosen: Mapping[str, Mapping[str, Rule]],
    is_judged: bool,
) -> Judged:
    """Train once for each pack, with a hook that saves what its rules need, and let it judge."""
    verdicts: dict[str, Verdict] = {}
    for pack, rules in chosen.items():
        run = obtain(plan, pack, root, again=again)
        if is_judged:
            verdicts |= judge(run.trial, rules, hung=run.hung, again=again)
    return Judged(plan, run.error, verdicts)
