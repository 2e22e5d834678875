"""Scripts without a hook whose optimizers step without effect: what is counted of that."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rule_runtime import create_trial
from rule_runtime.rules.ineffective_steps import IneffectiveSteps
from tests.hook_layer.autopatch.watched_scripts import ScriptRuns, configuration

SCRIPT = "ineffective_script.py"


@pytest.mark.parametrize(
    ("kind", "count", "least"),
    [
        ("detached outputs", "without_gradient", 15),
        ("detached outputs later", "without_gradient", 15),
        ("detached loss", "without_gradient", 29),
        ("detached loss later", "without_gradient", 19),
        ("made anew", "of_other_parameters", 15),
        ("reloaded", "of_other_parameters", 10),
        ("scaler", "skipped", 29),
        ("scaler of a fused one", "skipped", 29),
        ("healthy", "", 0),
    ],
)
def test_steps_without_effect_are_counted(
    runs: ScriptRuns, tmp_path: Path, kind: str, count: str, least: int
) -> None:
    wanted = [_as_json(config) for config in IneffectiveSteps().requires()]
    config = configuration(tmp_path, tmp_path / "tensors", *wanted)
    done = runs.watched(config, SCRIPT, kind)
    assert done.stdout == runs.plain(SCRIPT, kind).stdout, done.stderr
    assert not re.search("Traceback|failed", done.stderr), done.stderr
    trial = create_trial(str(tmp_path / "tensors"))
    for name in ("without_gradient", "of_other_parameters", "skipped"):
        tensor = trial.tensor(f"optimizer_steps/{name}")
        latest = float(tensor.value(tensor.steps()[-1]))
        # Without a gradient the optimizer of another model steps, too.
        assert latest >= least if name == count else latest == 0 or count == "of_other_parameters"


def _as_json(config: object) -> dict[str, object]:
    name, parameters = config.name, dict(config.parameters)  # type: ignore[attr-defined]
    return {
        "CollectionName": name,
        "CollectionParameters": {**parameters, "save_interval": "1"},
    }
