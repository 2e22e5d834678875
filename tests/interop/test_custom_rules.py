"""A rule file runs unchanged with the original client, with ours, and in our evaluators."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from hook_layer.storage.local import LocalStore
from rule_runtime import smdebug_alias
from rule_runtime.custom_rules.loader import load_custom_rule
from rule_runtime.engine.outcome import IssueFound, NotEvaluated
from rule_runtime.testing.trial_builder import TrialBuilder
from tests.interop.environment import HERE, OUR_PYTHON, ROOT, SMDEBUG_PYTHON, run_scripts

pytestmark = pytest.mark.other_environment

RULES = ROOT / "tests" / "rule_runtime" / "custom_rules" / "files"
RULE_FILE = RULES / "required.py"
RULE = "BehindTheOther"
ALIAS = ROOT / "rule_runtime" / "smdebug_alias" / "__main__.py"
SCRIPT = HERE / "invoke_script.py"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TrialBuilder]:
    folder = tmp_path_factory.mktemp("jobs")
    made = {}
    for name in ("judged", "other"):
        run = made[name] = TrialBuilder(LocalStore(folder / name))
        run.collections(losses=("loss",))
        for step in (0, 2, 3, 6, 8, 11):
            tensors = {"w": [1.0]} if step == 6 else {"loss": _loss(name, step)}
            run.step(step, tensors, mode_step=step)
        run.end()
    return made


def _loss(name: str, step: int) -> Any:
    return np.float32(1 / (step + 1) + (0.5 if name == "judged" and step != 3 else -0.1))


@pytest.fixture(scope="module")
def found(runs: dict[str, TrialBuilder]) -> list[dict[str, Any]]:
    """What the script says with the original client, and with ours."""
    roots = [run.store.uri.removeprefix("file://") for run in runs.values()]
    arguments = (RULE_FILE, RULE, *roots)
    outputs = run_scripts(
        (SMDEBUG_PYTHON, SCRIPT, *arguments), (OUR_PYTHON, ALIAS, SCRIPT, *arguments)
    )
    return [json.loads(output.rpartition("found:")[2]) for output in outputs]


def test_both_judge_alike(found: list[dict[str, Any]]) -> None:
    original, ours = found
    assert original["judged"] == {"0": False, "2": True, "3": False, "8": False, "11": True}
    assert original["ending"].startswith("Looking for step 12 of mode GLOBAL")
    for key in ("judged", "ending", "details", "best", "report"):
        assert ours[key] == original[key], key


def test_both_take_the_same_arguments(found: list[dict[str, Any]]) -> None:
    original, ours = found
    assert ours["parameters"] == original["parameters"]


def test_our_evaluators_judge_alike(
    runs: dict[str, TrialBuilder], found: list[dict[str, Any]]
) -> None:
    smdebug_alias.uninstall()
    rule = load_custom_rule(
        RULE_FILE, RULE, {"other_trial_0": "other"}, allowed=[Path(RULE_FILE).parent]
    )
    outcomes = dict(zip((0, 2, 3, 6, 8, 11), runs["judged"].outcomes(rule), strict=True))
    smdebug_alias.uninstall()
    judged = {
        str(step): isinstance(outcome, IssueFound)
        for step, outcome in outcomes.items()
        if not isinstance(outcome, NotEvaluated)
    }
    assert judged == found[0]["judged"]


def test_a_rule_that_maps_global_steps_to_modes_judges_alike(tmp_path: Path) -> None:
    run = TrialBuilder(LocalStore(tmp_path / "run"))
    run.collections(all=("outputs", "labels"))
    for step, right in enumerate((4, 4, 1, 3, 4, 2)):
        tensors = {
            "outputs": np.eye(4, dtype=np.float32),
            "labels": np.r_[:right, [9] * (4 - right)],
        }
        run.step(step, tensors, mode=ModeKeys.EVAL if step % 2 else ModeKeys.TRAIN)
    run.end()
    file, name = RULES / "validation_accuracy.py", "ValidationAccuracyDrops"
    arguments = (file, name, tmp_path / "run", tmp_path / "run")
    outputs = run_scripts(
        (SMDEBUG_PYTHON, SCRIPT, *arguments), (OUR_PYTHON, ALIAS, SCRIPT, *arguments)
    )
    original, ours = (json.loads(output.rpartition("found:")[2]) for output in outputs)
    assert ours == original
    assert ours["details"] == {"1": 1.0, "3": 0.75, "5": 0.5}
    smdebug_alias.uninstall()
    outcomes = run.outcomes(load_custom_rule(file, name, {}, allowed=[RULES]))
    smdebug_alias.uninstall()
    assert [isinstance(outcome, IssueFound) for outcome in outcomes] == [
        *[False] * 3,
        True,
        False,
        True,
    ]
