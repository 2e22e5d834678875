"""Print everything that a reader says of trials, a line of JSON for each.

    python dump_trial.py smdebug.trials|rule_runtime < PATHS

The script speaks the original's API only, and runs unchanged with its reader and with ours.
"""

import hashlib
import importlib
import json
import sys

import numpy as np


def shown(value):
    """Return type, shape and bytes of a value, so that comparing is comparing bits."""
    if value is None:
        return None
    array = np.asarray(value)
    if array.dtype.kind in "US":
        return ["str", list(array.shape), array.tolist()]
    data = np.ascontiguousarray(array).tobytes()
    digest = data.hex() if len(data) <= 64 else hashlib.sha256(data).hexdigest()
    return [array.dtype.name, list(array.shape), digest]


def attempt(query, *arguments, **keywords):
    """Return a query's answer, or the name of the exception that it raised."""
    try:
        return query(*arguments, **keywords)
    except Exception as error:
        return "raised " + type(error).__name__


def dump_tensor(tensor, modes):
    """Return steps, values, reductions and shapes of one tensor."""
    content = {"modes": {}, "values": {}, "reductions": {}, "shapes": {}, "workers": {}}
    for mode in modes:
        content["modes"][mode.name] = list(tensor.steps(mode=mode))
    for step in tensor.steps():
        workers = sorted(tensor.workers(step))
        content["workers"][step] = workers
        content["values"][step] = {
            worker: shown_or_raised(attempt(tensor.value, step, worker=worker))
            for worker in workers
        }
        content["reductions"][step] = {
            worker: dump_reductions(tensor, step, worker) for worker in workers
        }
        content["shapes"][step] = [
            str(attempt(tensor.shape, step, worker=worker)) for worker in workers
        ]
    return content


def shown_or_raised(value):
    """Pass the name of an exception through and show every other value."""
    return value if isinstance(value, str) else shown(value)


def dump_reductions(tensor, step, worker):
    """Return the stored reductions of one tensor at one step."""
    values = attempt(tensor.reduction_values, step, worker=worker)
    if not isinstance(values, dict):
        return values
    return {
        f"{'abs_' if absolute else ''}{name}": shown(np.asarray(value, np.float64))
        for (name, absolute), value in sorted(values.items())
    }


def dump(module, path):
    """Open a trial, wait for its end and return what is in it."""
    trial = importlib.import_module(module).create_trial(path)
    modes = sorted(trial.modes(), key=lambda mode: mode.value)
    names = sorted(trial.tensor_names())
    return {
        "names": names,
        "modes": [mode.name for mode in modes],
        "steps": {mode.name: list(trial.steps(mode=mode)) for mode in modes},
        "all_steps": list(trial.steps()),
        "mode_steps": {
            step: [trial.mode(step).name, trial.mode_step(step)] for step in trial.steps()
        },
        "global_steps": {
            mode.name: [trial.global_step(mode, step) for step in trial.steps(mode=mode)]
            for mode in modes
        },
        "workers": sorted(trial.workers()),
        "collections": {
            name: {
                "include_regex": list(collection.include_regex),
                "tensor_names": sorted(trial.tensor_names(collection=name)),
            }
            for name, collection in sorted(trial.collections().items())
        },
        "regex": sorted(trial.tensor_names(regex=".*weight")),
        "at_first_step": sorted(trial.tensor_names(step=trial.steps()[0])),
        "tensors": {name: dump_tensor(trial.tensor(name), modes) for name in names},
        "loaded_all_steps": trial.loaded_all_steps,
    }


def main(module):
    """Print every trial that is named, or why it cannot be read."""
    for line in sys.stdin:
        try:
            content = dump(module, line.strip())
        except Exception as error:
            content = {"failed": repr(error)}
        print(json.dumps(content), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
