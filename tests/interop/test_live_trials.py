"""Which steps of a trial can be read, asked of the original's reader and of ours side by side."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import END_MARKER
from hook_layer.storage.local import LocalStore
from rule_runtime.testing import TrialBuilder
from tests.interop.environment import OUR_PYTHON, SMDEBUG_PYTHON, TIMEOUT_S, started

pytestmark = pytest.mark.other_environment

WRITTEN = [(), (0,), (0, 10), (0, 10, 20), (0, 20), (10,), (10, 20), (0, 10, 20, 30)]
SCENARIOS = list(itertools.product(WRITTEN, WRITTEN, (False, True)))
Scenario = tuple[Sequence[int], Sequence[int], bool]


def write(path: Path, scenario: Scenario, *, run: str | None) -> None:
    """Write what two workers wrote of the steps 0, 10, 20, 30, of modes in turns."""
    *written, has_ended = scenario
    builder = TrialBuilder(LocalStore(path), run=run, num_workers=2)
    for rank, steps in enumerate(written):
        builder.collections(worker=f"worker_{rank}", losses=("loss",))
        for step in steps:
            tensors = {"loss": np.float32([step + rank])}
            if step == 20:
                tensors["extra"] = np.float32([1, 2])
            builder.step(
                step,
                tensors,
                mode=ModeKeys.EVAL if step == 10 else ModeKeys.TRAIN,
                mode_step={0: 0, 10: 0, 20: 1, 30: 2}[step],
                worker=f"worker_{rank}",
            )
    if has_ended:
        builder.store.put(END_MARKER, b"")


def watched(python: Path, module: str, paths: Sequence[Path]) -> list[dict[str, Any]]:
    process = started(python, "watch_script.py", module, errors=subprocess.DEVNULL)
    output, _ = process.communicate("\n".join(map(str, paths)), timeout=TIMEOUT_S)
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def both(folder: Path, *, run: str | None) -> Iterator[tuple[Scenario, Any, Any]]:
    """Yield every scenario with what the original's reader and ours say of it."""
    paths = [folder / str(number) for number in range(len(SCENARIOS))]
    for path, scenario in zip(paths, SCENARIOS, strict=True):
        write(path, scenario, run=run)
    theirs = watched(SMDEBUG_PYTHON, "smdebug.trials", paths)
    ours = watched(OUR_PYTHON, "rule_runtime", paths)
    return zip(SCENARIOS, theirs, ours, strict=True)


def test_of_the_originals_files_both_say_the_same(tmp_path: Path) -> None:
    num_crashes = 0
    for scenario, one, other in both(tmp_path, run=None):
        # It takes a step of a mode for a global one, if only some workers wrote it.
        num_crashes += _take_out_crashes(one["states"], other["states"])
        assert other == one, scenario
    assert num_crashes > 0


def test_of_our_files_we_know_as_much_or_more(tmp_path: Path) -> None:
    num_more = 0
    for scenario, one, other in both(tmp_path, run="run-1"):
        _take_out_crashes(one["states"], other["states"])
        for step, state in one["states"]["GLOBAL"].items():
            said = other["states"]["GLOBAL"][step]
            # Files have numbers: a worker that went on to a later step has left this one behind.
            is_passed = all(steps and max(steps) >= int(step) for steps in scenario[:2])
            assert said == state or (is_passed and "NOT_YET" in state), (scenario, step)
            num_more += said != state
        for part in ("incomplete", "names", "names_at", "missing", "has", "places", "workers"):
            assert other[part] == one[part], (scenario, part)
        if scenario[2]:
            assert other == one, scenario
    assert num_more > 0


def _take_out_crashes(one: dict[str, Any], other: dict[str, Any]) -> int:
    """Remove the states of steps at which the original crashed; return how many."""
    crashed = [
        (mode, step)
        for mode, states in one.items()
        for step, state in states.items()
        if state.startswith("raised KeyError")
    ]
    for mode, step in crashed:
        del one[mode][step], other[mode][step]
    return len(crashed)
