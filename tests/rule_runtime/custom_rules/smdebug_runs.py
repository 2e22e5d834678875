"""Rules in files of the user, in three styles, and runs that they judge."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import numpy as np

from hook_layer.storage.local import LocalStore
from rule_runtime.custom_rules.loader import load_custom_rule
from rule_runtime.engine.reconciler import Reconciler
from rule_runtime.engine.rule import Rule
from rule_runtime.engine.state import EvaluationState
from rule_runtime.testing.trial_builder import TrialBuilder
from rule_runtime.trial.step_index import load_step_files

__all__ = ["RULES", "STEPS", "STYLES", "inline", "judged", "load", "write_run"]

RULES = Path(__file__).parent / "files"
STYLES = {
    "native": ("native.py", "QuietGradient", {"threshold": "1e-3", "patience": "1"}),
    "documented": ("documented.py", "QuietGradientRule", {"threshold": "1e-3"}),
    "required": ("required.py", "BehindTheOther", {"other_trial_0": "other"}),
}
STEPS = list(range(0, 50, 5))


def write_run(folder: Path, *, is_sick: bool, num_workers: int = 1) -> TrialBuilder:
    """Write a run; of a sick one, gradients vanish and the loss grows from step 25 on."""
    run = TrialBuilder(LocalStore(folder), num_workers=num_workers)
    for step in STEPS:
        factor = 1e-6 if is_sick and step >= 25 else 1.0
        tensors = {
            "gradient/fc": np.full(4, 0.1 * factor),
            "loss": np.float32(2.0 if is_sick and step >= 25 else 1.0),
        }
        for worker in range(num_workers):
            run.step(step, tensors, worker=f"worker_{worker}", mode_step=step)
    run.end()
    return run


def load(style: str, **more: Any) -> Rule:
    """Return the rule in one of the styles, with more parameters."""
    file, name, parameters = STYLES[style]
    return load_custom_rule(RULES / file, name, {**parameters, **more}, allowed=[RULES])


def inline(folder: Path, body: str, **parameters: Any) -> Rule:
    """Return a rule of the original's style whose class has this body."""
    code = "from smdebug.rules import Rule\n\n\nclass Mine(Rule):\n"
    path = folder / "mine.py"
    path.write_text(code + textwrap.indent(textwrap.dedent(body), "    "))
    return load_custom_rule(path, "Mine", parameters, allowed=[folder])


def judged(jobs: Path, rule: Rule, sizes: list[int], name: str = "judged") -> EvaluationState:
    """Return the final state when as many files as `sizes` says come between two looks."""
    store = LocalStore(jobs / name)
    keys = sorted(store.list("index/"))
    state = EvaluationState.initial()
    while keys:
        size = max(sizes.pop(0) if sizes else len(keys), 1)
        files = load_step_files(store, keys[:size])
        state = Reconciler(store, rule, "run-1").advance(state, files)
        state = EvaluationState.from_json(json.loads(json.dumps(state.to_json())))
        keys = keys[size:]
    return Reconciler(store, rule, "run-1").advance(state, (), ended=True)
