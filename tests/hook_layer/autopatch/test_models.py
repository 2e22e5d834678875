"""Which module of a script without a hook is its model, where that is not the first one called."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hook_layer.format.modes import ModeKeys
from rule_runtime import create_trial
from rule_runtime.trial.trial import Trial
from tests.hook_layer.autopatch.plain_runs import PlainRuns
from tests.hook_layer.autopatch.test_command import SCRIPTS, configuration, run

SCRIPT = "models_script.py"
WEIGHTS = {f"Net_{part}.weight" for part in ("blocks.0.layer", "blocks.1.layer", "head")}
ANOTHER = "the other model"


@pytest.fixture(scope="module")
def unhooked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlainRuns]:
    runs = PlainRuns(SCRIPTS, tmp_path_factory.mktemp("plain"))
    yield runs
    runs.close()


@pytest.mark.parametrize("kind", ["workers", "beside", "regional", "wrapped", "criterion"])
def test_the_model_is_the_outermost_one_that_an_optimiser_trains(
    unhooked: PlainRuns, tmp_path: Path, kind: str
) -> None:
    trial, log = watched(unhooked, tmp_path, kind)
    names = set(trial.tensor_names())
    num_steps = 5 if kind == "workers" else 10
    assert {name for name in names if name.endswith("weight")} == WEIGHTS
    loss = {"regional": "FocalLoss_output_0", "criterion": "Loss_output_0"}.get(
        kind, "MSELoss_output_0"
    )
    assert trial.tensor(loss).steps(mode=ModeKeys.TRAIN) == list(range(num_steps))
    assert ANOTHER not in log


def test_a_model_of_which_only_methods_are_called_is_one(
    unhooked: PlainRuns, tmp_path: Path
) -> None:
    trial, log = watched(unhooked, tmp_path, "methods")
    assert set(trial.tensor_names()) == WEIGHTS | {"MSELoss_output_0"}
    assert trial.steps(mode=ModeKeys.TRAIN) == list(range(10))
    assert trial.steps(mode=ModeKeys.EVAL) == list(range(4))
    assert trial.tensor("MSELoss_output_0").steps(mode=ModeKeys.EVAL) == [0, 2]
    assert ANOTHER not in log


def test_training_goes_on_where_the_mode_of_validation_is_left_on(
    unhooked: PlainRuns, tmp_path: Path
) -> None:
    trial, log = watched(unhooked, tmp_path, "forgotten")
    assert len(trial.steps(mode=ModeKeys.TRAIN)) == 5 + 3  # of 5 in the second epoch
    assert trial.steps(mode=ModeKeys.EVAL) == [0]
    assert log.count("the model trains in evaluation mode (model.eval())") == 1


def test_a_training_within_a_compiled_function_is_not_seen_and_the_log_says_why(
    unhooked: PlainRuns, tmp_path: Path
) -> None:
    config = configuration(tmp_path, tmp_path / "tensors")
    done = run(["-m", "hook_layer", "--config", config, SCRIPT, "function"])
    assert done.stdout == unhooked([SCRIPT, "function"]).stdout, done.stderr
    assert not (tmp_path / "tensors").exists()
    assert done.stderr.count("compile the model") == 1


def test_a_model_of_which_an_optimiser_trains_copies_is_one_from_the_second_step_on(
    unhooked: PlainRuns, tmp_path: Path
) -> None:
    trial, log = watched(unhooked, tmp_path, "copies")
    assert set(trial.tensor_names()) == WEIGHTS | {"MSELoss_output_0"}
    assert trial.steps(mode=ModeKeys.TRAIN) == list(range(9))
    assert ANOTHER not in log


def watched(
    unhooked: PlainRuns, folder: Path, *arguments: str, script: str = SCRIPT
) -> tuple[Trial, str]:
    """Return what a script saves, which prints the same as without us, and the log."""
    config = configuration(
        folder, folder / "tensors", {"CollectionName": "weights"}, {"CollectionName": "losses"}
    )
    done = run(["-m", "hook_layer", "--config", config, script, *arguments])
    assert done.stdout == unhooked([script, *arguments]).stdout, done.stderr
    assert not re.search("Traceback|failed", done.stderr), done.stderr
    return create_trial(str(folder / "tensors")), done.stderr
