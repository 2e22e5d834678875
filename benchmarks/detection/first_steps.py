"""Measure the first step that each rule evaluates, and the step of its first finding.

python -m benchmarks.detection.first_steps [--folder RUNS] [--jobs N]

Rules evaluate runs that `compare` has trained for the pack `recommended`: rules of the pack with
its parameters, others with their defaults. They see only steps that the pack saves. The result is
`first_steps.json`, which the documentation of rules shows.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

from benchmarks.detection.evaluated_runs import RUNS
from hook_layer.format.modes import ModeKeys
from hook_layer.storage.base import open_store
from rule_runtime.configuration.dense_start import DENSE_STEPS
from rule_runtime.configuration.packs import find_pack
from rule_runtime.engine.evaluator import Evaluation
from rule_runtime.engine.parameters import ParameterError
from rule_runtime.engine.registry import available_rules
from rule_runtime.engine.rule import Rule
from rule_runtime.trial.step_index import list_index_files, load_step_files
from rule_runtime.trial.step_view import StepReader, StepView

__all__ = ["FIRST_STEPS", "first_steps_of", "main"]

FIRST_STEPS: Final = Path(__file__).resolve().parent / "first_steps.json"
_PACK: Final = find_pack("recommended")
_INTERVAL: Final = _PACK.save_interval or 1
_EVALUATES, _FINDS = "evaluates", "finds"

First = dict[str, dict[str, int]]
"""For each rule the first step that it evaluated, and that of its first finding."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.detection.first_steps")
    parser.add_argument("--folder", type=Path, default=RUNS, help="cache of runs")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    given = parser.parse_args(arguments)
    trials = sorted(given.folder.glob(f"*/*/*-{_PACK.name}-*/trial"))
    with ProcessPoolExecutor(given.jobs) as pool:
        found = _earliest(pool.map(first_steps_of, trials))
    FIRST_STEPS.write_text(json.dumps(dict(sorted(found.items())), indent=1) + "\n")
    print(f"{len(found)} rules evaluated one of {len(trials)} runs")
    return 0


def _earliest(runs: Iterable[First]) -> First:
    earliest: First = {}
    for run in runs:
        for rule, steps in run.items():
            known = earliest.setdefault(rule, {})
            for what, step in steps.items():
                known[what] = min(step, known.get(what, step))
    return earliest


def first_steps_of(trial: Path) -> First:
    """Return the first steps of one run, by rule."""
    evaluations = {name: Evaluation.fresh(rule) for name, rule in _rules().items()}
    first: First = {}
    for step, view in _saved_views(trial):
        for name, evaluation in evaluations.items():
            evaluation.feed(view)
            for what, is_so in (
                (_EVALUATES, evaluation.counts.evaluated),
                (_FINDS, evaluation.evidence is not None),
            ):
                if is_so:
                    first.setdefault(name, {}).setdefault(what, step)
    return first


def _saved_views(trial: Path) -> Iterator[tuple[int, StepView]]:
    """Yield those steps of a run that the pack saves, each with the latest training step."""
    store = open_store(str(trial))
    reader, step = StepReader(store), 0
    for file in load_step_files(store, [key for key, _ in list_index_files(store)]):
        view = reader.view(file.step, [file], num_workers=1)
        is_training = view.mode in (ModeKeys.TRAIN, ModeKeys.GLOBAL)
        if is_training and view.mode_step % _INTERVAL and view.mode_step not in DENSE_STEPS:
            continue
        step = view.mode_step if is_training else step
        yield step, view


def _rules() -> Mapping[str, Rule]:
    """Return the rules of the pack, and all others without required parameters."""
    rules = dict(_PACK.rules())
    for name, kind in available_rules().items():
        if name not in rules and kind.__module__.startswith("rule_runtime.rules."):
            try:
                rules[name] = kind()
            except ParameterError:
                continue
    return rules


if __name__ == "__main__":
    sys.exit(main())
