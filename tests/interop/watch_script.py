"""Print which steps a reader takes as complete, a line of JSON for each trial.

    python watch_script.py smdebug.trials|rule_runtime < PATHS

The script speaks the original's API only, and runs unchanged with its reader and with ours. The
trials need not have ended, so nothing here waits.
"""

import importlib
import inspect
import json
import sys
from collections.abc import Callable
from typing import Any

STEPS = range(-1, 35)


def attempt(query: Callable[..., Any], *arguments: Any, **keywords: Any) -> str:
    """Return a query's answer as text, or the name and the text of its exception."""
    try:
        return str(query(*arguments, **keywords))
    except Exception as error:  # noqa: BLE001 - it is what is asked for
        return f"raised {type(error).__name__}: {error}"


def watch(module: str, path: str) -> dict[str, Any]:
    """Open a trial and return what it says of its steps."""
    trial = importlib.import_module(module).create_trial(path)
    kind: Any = type(inspect.signature(trial.steps).parameters["mode"].default)
    modes = list(kind)
    states = {
        mode.name: {step: attempt(trial.has_passed_step, step, mode) for step in STEPS}
        for mode in modes
    }
    decided = [step for step in STEPS if "NOT_YET" not in states["GLOBAL"][step]]
    names = trial.tensor_names()
    return {
        "states": states,
        "steps": {mode.name: list(trial.steps(mode)) for mode in modes},
        "incomplete": {
            mode.name: list(trial.steps(mode, show_incomplete_steps=True)) for mode in modes
        },
        "waits": {step: attempt(trial.wait_for_steps, [step]) for step in decided},
        "names": names,
        "names_at": {step: trial.tensor_names(step=step) for step in STEPS},
        "of_mode": {mode.name: trial.tensor_names(mode=mode) for mode in trial.modes()},
        "tensors": {name: tensor_facts(trial.tensor(name)) for name in names},
        "missing": attempt(trial.tensor, "missing"),
        "has": [trial.has_tensor(name) for name in ["loss", "missing"]],
        "places": {step: [str(part) for part in trial.mode_modestep(step)] for step in STEPS},
        "workers": trial.workers(),
        "attributes": {
            "num_workers": trial.num_workers,
            "last_complete_step": trial.last_complete_step,
            "loaded_all_steps": trial.loaded_all_steps,
            "worker_set": sorted(trial.worker_set),
            "workers_for_global_step": {
                step: sorted(workers) for step, workers in trial.workers_for_global_step.items()
            },
            "global_step_to_tensors_map": {
                step: sorted(found) for step, found in trial.global_step_to_tensors_map.items()
            },
        },
    }


def tensor_facts(tensor: Any) -> dict[str, Any]:
    """Return what one tensor says of steps, also of those that it does not have."""
    return {
        "steps": list(tensor.steps()),
        "incomplete": list(tensor.steps(show_incomplete_steps=True)),
        "previous": [tensor.prev_steps(25), tensor.prev_steps(25, 1), tensor.prev_steps(-1)],
        "values": {step: attempt(tensor.value, step) for step in STEPS},
        "shapes": {step: attempt(tensor.shape, step_num=step) for step in STEPS},
        "means": {step: attempt(tensor.reduction_value, step, "max") for step in STEPS},
        "reductions": {step: attempt(tensor.reduction_values, step) for step in STEPS},
        "workers": {step: attempt(lambda at=step: sorted(tensor.workers(at))) for step in STEPS},
        "wrong_worker": attempt(tensor.value, 10, worker="worker_7"),
        "original_name": tensor.original_name,
    }


def main(module: str) -> None:
    """Print every trial that is named, or why it cannot be read."""
    for line in sys.stdin:
        try:
            content = watch(module, line.strip())
        except Exception as error:  # noqa: BLE001 - it is what is asked for
            content = {"failed": repr(error)}
        print(json.dumps(content), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
