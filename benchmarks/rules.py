"""The cost of evaluating a run: rules, the evaluator, and its imports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.measuring import Scale, in_turns, seconds
from benchmarks.reading import RUN, smdebug_opener, write_trial
from benchmarks.result import Measured, Result
from hook_layer.storage.base import Store, open_store
from rule_runtime.engine.reconciler import Reconciler
from rule_runtime.engine.state import EvaluationState
from rule_runtime.rules.vanishing_gradient import VanishingGradient
from rule_runtime.trial.step_index import list_index_files, load_step_files

__all__ = ["evaluator", "imports", "vanishing_gradient"]

EVENTS_AT_ONCE = 10
HANDLER = "lambdas.evaluate_rule.handler"
ROOT = Path(__file__).resolve().parent.parent


def vanishing_gradient(scale: Scale) -> list[Result]:
    """One rule over 1,000 steps x 50 tensors, from the files to the verdict."""
    folder = write_trial(scale)
    store = open_store(folder)
    steps = len(_keys(store))

    def evaluate() -> None:
        Reconciler(store, VanishingGradient(), RUN).advance(
            EvaluationState.initial(), (), ended=True
        )

    works = {"ours": lambda: seconds(evaluate)}
    times = _per_step(in_turns(works, scale.rounds), steps)
    if scale.peers:
        some = min(steps, 100)
        theirs = in_turns({"smdebug": _smdebug_rule(folder, some)}, min(scale.rounds, 3))
        times |= _per_step(theirs, some)
    row = "VanishingGradient, 50 tensors"
    return [Result(row, "ms/step", times.pop("ours"), 0.11, 0.05, None, times)]


def evaluator(scale: Scale) -> list[Result]:
    """Ten events of a job that runs, from the stored state to the next one, without network."""
    store = open_store(write_trial(scale))
    keys = _keys(store)
    reconciler = Reconciler(store, VanishingGradient(), RUN)
    state = json.dumps(EvaluationState.initial().to_json())
    times = []
    for start in range(0, len(keys), EVENTS_AT_ONCE):
        began = time.perf_counter()
        files = load_step_files(store, keys[start : start + EVENTS_AT_ONCE])
        after = reconciler.advance(EvaluationState.from_json(json.loads(state)), files)
        state = json.dumps(after.to_json())
        times.append(1e3 * (time.perf_counter() - began))
    return [Result("warm evaluator, ten events", "ms", Measured.of(times), 20, 10)]


def imports(scale: Scale) -> list[Result]:
    """Import the evaluator in new processes, less the time of a bare interpreter."""
    commands = {"": "pass", "ours": f"import {HANDLER}"}
    if scale.peers:
        commands["smdebug.trials"] = "import smdebug.trials"
    works = {name: _process(code) for name, code in commands.items()}
    # The peers' environment holds an old numpy; the layer has what the checkout's has.
    own = ROOT / ".venv" / "bin" / "python"
    if own.exists():
        works["ours"] = _process(commands["ours"], own)
    times = in_turns(works, max(scale.rounds // 2, 3))
    bare = Measured.of(times.pop("")).median
    net = {n: Measured.of(1e3 * (time - bare) for time in found) for n, found in times.items()}
    return [Result("cold imports of an evaluator", "ms", net.pop("ours"), 400, 300, None, net)]


def _keys(store: Store) -> list[str]:
    return [key for key, _ in list_index_files(store)]


def _per_step(times: dict[str, list[float]], steps: int) -> dict[str, Measured]:
    return {
        name: Measured.of(1e3 * time / steps for time in found) for name, found in times.items()
    }


def _process(code: str, python: str | Path = sys.executable) -> Callable[[], float]:
    """Return what runs a program; a first run, not measured, leaves the compiled modules behind."""
    command = [str(python), "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}"]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}

    def run() -> None:
        subprocess.run(command, check=True, capture_output=True, env=environment)

    run()
    return lambda: seconds(run)


def _smdebug_rule(folder: Path, steps: int) -> Callable[[], float]:
    """Return what evaluates some steps with the rule of the original's documentation."""
    create_trial = smdebug_opener()
    from smdebug.rules.rule import Rule as TheirRule  # noqa: PLC0415

    class TheirVanishingGradient(TheirRule):  # type: ignore[misc]
        def __init__(self, base_trial: Any) -> None:
            super().__init__(base_trial, action_str="")

        def invoke_at_step(self, step: int) -> bool:
            for name in self.base_trial.tensor_names(collection="gradients"):
                mean = self.base_trial.tensor(name).reduction_value(step, "mean", abs=True)
                if mean < 1e-7:  # noqa: PLR2004 - the rule's threshold
                    return True
            return False

    rule = TheirVanishingGradient(create_trial(str(folder)))

    def evaluate() -> None:
        for step in range(steps):
            assert not rule.invoke_at_step(step)

    return lambda: seconds(evaluate)
