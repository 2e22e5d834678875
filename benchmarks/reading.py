"""Reading a trial of 1,000 steps x 50 tensors of 1 KiB, as people and rules do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measuring import Scale, in_turns, seconds
from benchmarks.result import Measured, Result
from benchmarks.writing import SMALL, arrays_of
from hook_layer.storage.base import open_store
from rule_runtime import create_trial
from rule_runtime.testing import TrialBuilder

__all__ = ["LOSS", "RUN", "memory", "opening", "smdebug_opener", "values", "write_trial"]

RUN = "run-1"
LOSS = "CrossEntropyLoss_output_0"
PEAK_MEMORY = (
    "import resource, sys; sys.path.insert(0, sys.argv[1]);"
    "from {module} import create_trial; trial = create_trial(sys.argv[2]);"
    "names, steps = trial.tensor_names(), trial.steps();"
    "[trial.tensor({name!r}).reduction_value(step, 'mean', abs=True) for step in steps];"
    "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
)
SETTINGS = {"SMDEBUG_TRAINING_END_DELAY_REFRESH": "0", "SMDEBUG_LOG_LEVEL": "error"}


def opening(scale: Scale) -> list[Result]:
    """Open a trial, list its names and steps, and read one statistic of every step."""
    folder = write_trial(scale)

    def read(create: Callable[[str], Any]) -> None:
        trial = create(str(folder))
        trial.tensor_names()
        tensor = trial.tensor(LOSS)
        for step in trial.steps():
            tensor.reduction_value(step, "mean", abs=True)

    limit = seconds(lambda: [path.read_bytes() for path in folder.rglob("*.json")])
    times = _of_both(read, scale)
    row = "open 1,000 steps, one statistic of each"
    return [Result(row, "ms", times.pop("ours"), 100, 54, 1e3 * limit, times)]


def values(scale: Scale) -> list[Result]:
    """Read all values of one tensor."""
    folder = write_trial(scale)
    tensors = {"ours": create_trial(folder).tensor(LOSS)}
    if scale.peers:
        tensors["smdebug"] = smdebug_opener()(str(folder)).tensor(LOSS)
    works: dict[str, Callable[[], float]] = {
        name: lambda tensor=tensor: seconds(  # type: ignore[misc]
            lambda: [tensor.value(step) for step in tensor.steps()]
        )
        for name, tensor in tensors.items()
    }
    works["ours"] = lambda: seconds(tensors["ours"].values)
    if scale.peers:
        works["safetensors"] = _safetensors(scale, folder)
    times = _ms(in_turns(works, scale.rounds))
    row = "all values of one tensor, 1,000 steps"
    return [Result(row, "ms", times.pop("ours"), 30, 12, None, times)]


def memory(scale: Scale) -> list[Result]:
    """Follow a trial in a process of its own: its peak memory."""
    folder = write_trial(scale)
    modules = {"ours": "rule_runtime"} | ({"smdebug": "smdebug.trials"} if scale.peers else {})
    found = {name: [_peak_mb(module, folder) for _ in range(3)] for name, module in modules.items()}
    peaks = {name: Measured.of(mb) for name, mb in found.items()}
    return [Result("follow a trial, peak memory", "MB", peaks.pop("ours"), 80, 60, None, peaks)]


def write_trial(scale: Scale) -> Path:
    """Write the trial, and return its folder."""
    folder = scale.folder / "trial"
    builder = TrialBuilder(open_store(folder), run=RUN)
    builder.collections(gradients=("^gradient",), losses=("[Ll]oss_(?!input).*output",))
    tensors = {name: 1e-2 * value for name, value in arrays_of(SMALL).items()}
    del tensors[next(iter(tensors))]
    for step in range(scale.of(1000, least=10)):
        loss = {LOSS: np.float32(2.3 * 0.999**step)}
        builder.step(step, tensors | loss, mode_step=step)
    builder.end()
    return folder


def _of_both(work: Callable[[Callable[[str], Any]], object], scale: Scale) -> dict[str, Measured]:
    creators = {"ours": create_trial} | ({"smdebug": smdebug_opener()} if scale.peers else {})
    works: Mapping[str, Callable[[], float]] = {
        name: lambda create=create: seconds(lambda: work(create))  # type: ignore[misc]
        for name, create in creators.items()
    }
    return _ms(in_turns(works, scale.rounds))


def _ms(times: Mapping[str, list[float]]) -> dict[str, Measured]:
    return {name: Measured.of(1e3 * time for time in found) for name, found in times.items()}


def smdebug_opener() -> Callable[[str], Any]:
    """Return the original's `create_trial`."""
    os.environ.update(SETTINGS)
    from smdebug.trials import create_trial as create  # noqa: PLC0415

    found: Callable[[str], Any] = create
    return found


def _safetensors(scale: Scale, trial: Path) -> Callable[[], float]:
    """Return what reads the same tensor out of files of its own kind, one a step."""
    from safetensors import safe_open  # noqa: PLC0415
    from safetensors.numpy import save_file  # noqa: PLC0415

    folder = scale.folder / "safetensors"
    folder.mkdir()
    tensors = dict(arrays_of(SMALL))
    for step in create_trial(trial).steps():
        tensors[LOSS] = np.array(step, dtype=np.float32)
        save_file(tensors, folder / f"{step:012}.safetensors")

    def read() -> None:
        for path in sorted(folder.iterdir()):
            with safe_open(path, framework="numpy") as file:
                file.get_tensor(LOSS)

    return lambda: seconds(read)


def _peak_mb(module: str, folder: Path) -> float:
    root = Path(__file__).resolve().parent.parent
    script = PEAK_MEMORY.format(module=module, name=LOSS)
    command = [sys.executable, "-c", script, str(root), str(folder)]
    environment = os.environ | SETTINGS
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return int(done.stdout.split()[-1]) / 1024
