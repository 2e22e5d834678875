"""Which module of a script without a hook is its model, where that is not the first one called."""

from __future__ import annotations

from pathlib import Path

import pytest

from hook_layer.format.modes import ModeKeys
from tests.hook_layer.autopatch.watched_scripts import ScriptRuns

SCRIPT = "models_script.py"
WEIGHTS = {f"Net_{part}.weight" for part in ("blocks.0.layer", "blocks.1.layer", "head")}
COLLECTIONS = ["weights", "losses"]
ANOTHER = "the other model"


@pytest.mark.parametrize("kind", ["workers", "beside", "regional", "wrapped", "criterion"])
def test_the_model_is_the_outermost_one_that_an_optimiser_trains(
    runs: ScriptRuns, tmp_path: Path, kind: str
) -> None:
    trial, log = runs.trial(tmp_path, SCRIPT, kind, collections=COLLECTIONS)
    names = set(trial.tensor_names())
    num_steps = 5 if kind == "workers" else 10
    assert {name for name in names if name.endswith("weight")} == WEIGHTS
    loss = {"regional": "FocalLoss_output_0", "criterion": "Loss_output_0"}.get(
        kind, "MSELoss_output_0"
    )
    assert trial.tensor(loss).steps(mode=ModeKeys.TRAIN) == list(range(num_steps))
    assert ANOTHER not in log


def test_a_model_may_be_called_by_its_methods_only(runs: ScriptRuns, tmp_path: Path) -> None:
    trial, log = runs.trial(tmp_path, SCRIPT, "methods", collections=COLLECTIONS)
    assert set(trial.tensor_names()) == WEIGHTS | {"MSELoss_output_0"}
    assert trial.steps(mode=ModeKeys.TRAIN) == list(range(10))
    assert trial.steps(mode=ModeKeys.EVAL) == list(range(4))
    assert trial.tensor("MSELoss_output_0").steps(mode=ModeKeys.EVAL) == [0, 2]
    assert ANOTHER not in log


@pytest.mark.parametrize("method", ["methods", "forward"])
def test_a_loss_by_hand_of_a_model_that_is_called_by_its_methods(
    runs: ScriptRuns, tmp_path: Path, method: str
) -> None:
    collections = ["losses", "loss_inputs"]
    trial, _ = runs.trial(tmp_path, SCRIPT, method, "by hand", collections=collections)
    names = ("Loss_output_0", "Loss_standard/MSELoss")
    loss, squares = (trial.tensor(name).value(4, mode=ModeKeys.TRAIN) for name in names)
    assert loss == pytest.approx(squares)
    assert "Loss_input_1" in trial.tensor_names()


def test_training_continues_if_the_script_stays_in_evaluation_mode(
    runs: ScriptRuns, tmp_path: Path
) -> None:
    trial, log = runs.trial(tmp_path, SCRIPT, "forgotten", collections=COLLECTIONS)
    assert len(trial.steps(mode=ModeKeys.TRAIN)) == 5 + 3  # of 5 in the second epoch
    assert trial.steps(mode=ModeKeys.EVAL) == [0]
    assert log.count("the model trains in evaluation mode (model.eval())") == 1


def test_of_a_training_within_a_compiled_function_weights_and_gradients_are_seen(
    runs: ScriptRuns, tmp_path: Path
) -> None:
    collections = ["weights", "gradients"]
    trial, log = runs.trial(tmp_path, SCRIPT, "function", collections=collections)
    assert log.count("or in compiled code") == 1
    assert trial.tensor_names(collection="weights")
    assert trial.tensor_names(collection="gradients")


def test_a_model_is_found_in_the_second_step_if_an_optimizer_trains_copies(
    runs: ScriptRuns, tmp_path: Path
) -> None:
    trial, log = runs.trial(tmp_path, SCRIPT, "copies", collections=COLLECTIONS)
    assert set(trial.tensor_names()) == WEIGHTS | {"MSELoss_output_0"}
    assert trial.steps(mode=ModeKeys.TRAIN) == list(range(9))
    assert ANOTHER not in log
