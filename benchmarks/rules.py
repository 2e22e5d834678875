"""What judging a run costs: time per step of each rule, opening a trial, reading one tensor.

    python benchmarks/rules.py [--steps 1000] [--tensors 50]

Prints one JSON object. Times are the best of several repeats; compare ratios, not machines.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable

import numpy as np

from hook_layer.format.job_file import JobFile
from hook_layer.format.paths import JOB_FILE
from hook_layer.storage.base import open_store
from rule_runtime import available_rules, create_trial
from rule_runtime.evaluation.evaluator import Evaluation
from rule_runtime.evaluation.reconciler import Reconciler
from rule_runtime.evaluation.rule import Rule
from rule_runtime.evaluation.state import EvaluationState
from rule_runtime.rules.vanishing_gradient import VanishingGradient
from rule_runtime.testing import TrialBuilder
from rule_runtime.trial.step_index import list_index_files, load_step_files
from rule_runtime.trial.step_view import StepReader

RUN = "run-1"
ELEMENTS = 256  # 1 KiB of float32


def write_trial(path: str, steps: int, tensors: int) -> None:
    builder = TrialBuilder(open_store(path), run=RUN)
    builder.collections(gradients=("^gradient",), losses=("[Ll]oss_(?!input).*output",))
    names = [f"gradient/Net_layer{i}.weight" for i in range(tensors - 1)]
    rng = np.random.default_rng(0)
    values = rng.normal(0, 1e-2, (len(names), ELEMENTS)).astype(np.float32)
    for step in range(steps):
        loss = {"CrossEntropyLoss_output_0": np.float32(2.3 * 0.999**step)}
        builder.step(step, dict(zip(names, values, strict=True)) | loss, mode_step=step)
    builder.end()
    job = JobFile(
        training_job_name="benchmark",
        run_id=RUN,
        platform="local",
        training_job_arn=None,
        started_at="2026-01-01T00:00:00Z",
        debug_rule_configurations=None,
        actions=(),
        opt_out_of_stop=False,
    )
    builder.store.put(JOB_FILE, job.encode())


def best(repeats: int, work: Callable[[], object]) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def check_only(path: str, rule: Rule, repeats: int) -> float:
    """Seconds per step of the rule and the evaluator, with the index files already parsed."""
    store = open_store(path)
    files = load_step_files(store, [key for key, _ in list_index_files(store)])
    reader = StepReader(store)

    def judge() -> None:
        evaluation = Evaluation.fresh(rule)
        for file in files:
            evaluation.feed(reader.view(file.step, [file], num_workers=1))

    return best(repeats, judge) / len(files)


def step_by_step(path: str, steps: int) -> dict[str, float]:
    """Seconds per step when each file is an event of its own and the state goes through JSON."""
    store = open_store(path)
    keys = [key for key, _ in list_index_files(store)]
    reconciler = Reconciler(store, VanishingGradient(), RUN)
    state = EvaluationState.initial()
    times = []
    for key in keys:
        start = time.perf_counter()
        files = load_step_files(store, [key])
        state = reconciler.advance(state, files)
        state = EvaluationState.from_json(json.loads(json.dumps(state.to_json())))
        times.append(time.perf_counter() - start)
    tenth = max(steps // 10, 1)
    return {
        "first_tenth_ms": 1e3 * float(np.median(times[:tenth])),
        "last_tenth_ms": 1e3 * float(np.median(times[-tenth:])),
        "state_bytes": len(json.dumps(state.to_json())),
    }


def open_and_list(path: str) -> None:
    trial = create_trial(path)
    trial.tensor_names()
    trial.steps()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--tensors", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    steps, repeats = arguments.steps, arguments.repeats
    with tempfile.TemporaryDirectory() as folder:
        write_trial(folder, steps, arguments.tensors)
        store = open_store(folder)
        keys = [key for key, _ in list_index_files(store)]
        trial = create_trial(folder)
        tensor = trial.tensor("CrossEntropyLoss_output_0")
        whole = Reconciler(store, VanishingGradient(), RUN)
        initial = EvaluationState.initial()
        result = {
            "steps": steps,
            "tensors": arguments.tensors,
            "load_and_parse_ms_per_step": 1e3
            * best(repeats, lambda: load_step_files(store, keys))
            / steps,
            "check_ms_per_step": {
                name: 1e3 * check_only(folder, rule(), repeats)
                for name, rule in available_rules().items()
            },
            "whole_run_vanishing_gradient_ms_per_step": 1e3
            * best(repeats, lambda: whole.advance(initial, (), ended=True))
            / steps,
            "event_by_event": step_by_step(folder, steps),
            "open_names_steps_ms": 1e3 * best(repeats, lambda: open_and_list(folder)),
            "values_of_one_tensor_ms": 1e3 * best(repeats, tensor.values),
        }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
