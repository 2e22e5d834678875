"""Trains and evaluates many runs, several processes at a time."""

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

from benchmarks.detection.evaluation import Verdict, evaluate
from benchmarks.detection.packs import class_of, packs
from benchmarks.detection.plans import Plan
from benchmarks.detection.runs import obtain
from benchmarks.detection.scores import EvaluatedRun
from rule_runtime.engine.rule import Rule

__all__ = ["RUNS", "evaluated_runs"]

RUNS: Final = Path(tempfile.gettempdir()) / "stepwatch-detection"
"""Default folder of runs and verdicts."""


def evaluated_runs(
    plans: Sequence[Plan],
    root: Path = RUNS,
    *,
    jobs: int = 2,
    only_packs: Sequence[str] | None = None,
    only_rules: Sequence[str] | None = None,
    evaluates: bool = True,
) -> list[EvaluatedRun]:
    """Return runs with the verdicts of all rules.

    Args:
        plans: The runs.
        root: Folder of runs and verdicts.
        jobs: Number of processes.
        only_packs: Names of packs of rules; None for all.
        only_rules: Names of rules; None for all of the packs.
        evaluates: False to train only.
    """
    chosen = {
        pack: {key: own[key] for key in own if class_of(key) in (only_rules or [class_of(key)])}
        for pack, own in packs(only_packs).items()
    }
    work = partial(_evaluate_one, root=root, chosen=chosen, evaluates=evaluates)
    if jobs == 1:
        return list(map(work, plans))
    # Programs use torch, whose threads do not survive a fork.
    with ProcessPoolExecutor(jobs, get_context("spawn"), _be_quiet) as pool:
        return list(pool.map(work, plans))


def _be_quiet() -> None:
    os.nice(10)
    # Rules of all packs see all runs, also those that they cannot evaluate.
    logging.disable(logging.WARNING)


def _evaluate_one(
    plan: Plan,
    *,
    root: Path,
    chosen: Mapping[str, Mapping[str, Rule]],
    evaluates: bool,
) -> EvaluatedRun:
    """Train once for each pack, with the collections that its rules need, and evaluate them."""
    verdicts: dict[str, Verdict] = {}
    for pack, rules in chosen.items():
        run = obtain(plan, pack, root)
        if evaluates:
            verdicts |= evaluate(run.trial, rules, hung=run.hung)
    return EvaluatedRun(plan, run.error, verdicts)
