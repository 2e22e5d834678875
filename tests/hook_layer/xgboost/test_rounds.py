"""Rounds are steps: where they begin and end, and where the trial does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost

from hook_layer.testing.written_trial import WrittenTrial
from hook_layer.xgboost import Hook, modes
from tests.hook_layer.xgboost.boosting import EVERY_ROUND, Script, make_hook, matrix, same, train

Log = pytest.LogCaptureFixture


def test_the_end_of_training_is_the_end_of_the_trial(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    train(hook)
    assert trial.end_marker() is not None
    assert not hook.is_active


def test_a_round_is_handed_over_before_the_next_one_begins(trial: WrittenTrial) -> None:
    seen: list[int] = []

    def look(_: Any, __: int) -> None:
        hook.flush()
        seen.append(len(trial.indexes()))

    hook = make_hook(trial)
    train(Script(before=look), hook)
    assert seen == [0, 1, 2, 3]


@pytest.mark.parametrize("save_best", [False, True])
@pytest.mark.parametrize("is_first", [False, True])
def test_early_stopping_loses_no_round(
    trial: WrittenTrial, is_first: bool, save_best: bool
) -> None:
    data, other = matrix(rows=slice(0, 100)), matrix(rows=slice(100, 200))
    stopping = xgboost.callback.EarlyStopping(rounds=2, save_best=save_best)
    hook = make_hook(trial, "predictions", validation_data=other)
    results: dict[str, Any] = {}
    train(
        *([stopping, hook] if is_first else [hook, stopping]),
        data=data,
        parameters={"max_depth": 8},
        rounds=50,
        evals=[(other, "other")],
        evals_result=results,
    )
    values = results["other"]["rmse"]
    assert len(values) < 50
    assert [trial.values(step)["other-rmse"][0] for step in sorted(trial.indexes())] == values
    has_predictions = ["predictions" in trial.names(step) for step in range(len(values))]
    assert has_predictions == [True] * (len(values) - 1) + [not (is_first and save_best)]


def test_early_stopping_by_the_argument(trial: WrittenTrial) -> None:
    data, other = matrix(rows=slice(0, 100)), matrix(rows=slice(100, 200))
    parameters = {"max_depth": 8}
    model = train(
        make_hook(trial),
        data=data,
        parameters=parameters,
        rounds=50,
        evals=[(other, "other")],
        early_stopping_rounds=2,
    )
    assert len(trial.indexes()) == model.num_boosted_rounds() == model.best_iteration + 3


def test_several_trainings_in_a_block_count_on(trial: WrittenTrial) -> None:
    data = matrix()
    with make_hook(trial) as hook:
        model = train(hook, data=data, rounds=2)
        assert trial.end_marker() is None
        train(hook, data=data, rounds=3, xgb_model=model)
        hook.save_scalar("score", 0.5)
    assert sorted(trial.indexes()) == [0, 1, 2, 3, 4]
    assert "scalar/score" in trial.names(4)
    assert trial.end_marker() is not None


def test_a_closed_hook_says_that_it_saves_nothing(trial: WrittenTrial, caplog: Log) -> None:
    hook = make_hook(trial)
    train(hook, rounds=2)
    train(hook, rounds=3)
    assert len(trial.indexes()) == 2
    assert "create a new hook" in caplog.text
    hook.close()
    hook.save_scalar("score", 0.5)
    assert "the hook is closed and stores nothing more" in caplog.text


def test_values_after_the_training_become_one_more_step(trial: WrittenTrial, caplog: Log) -> None:
    hook = make_hook(trial)
    train(hook, rounds=2)
    before = trial.end_marker()
    run = trial.job()
    hook.save_scalar("score", 0.25)
    hook.save_scalar("score", 0.5)
    hook.save_tensor("matrix", np.eye(2), collections_to_write="mine")
    assert sorted(trial.indexes()) == [0, 1]
    hook.close()
    assert trial.names(2) == {"scalar/score", "matrix"}
    assert trial.values(2)["scalar/score"].tolist() == [0.5]
    assert trial.indexes()[2].sequence == trial.indexes()[1].sequence + 1
    assert trial.collections().collections["mine"].tensor_names == ("matrix",)
    assert trial.job() == run
    after = trial.end_marker()
    assert before is not None
    assert after is not None
    assert before.sequences["worker_0"] + 1 == after.sequences["worker_0"]
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_values_after_the_training_of_a_forgotten_hook(tmp_path: Path) -> None:
    code = """
import gc, sys
from tests.hook_layer.xgboost.boosting import make_hook, train
from hook_layer.testing.written_trial import WrittenTrial
from hook_layer.xgboost import del_hook
def main():
    hook = make_hook(WrittenTrial(sys.argv[1]))
    train(hook, rounds=2)
    hook.save_scalar("score", 0.5)
main()
del_hook()
gc.collect()
"""
    command = [sys.executable, "-c", code, str(tmp_path / "run")]
    subprocess.run(command, check=True, timeout=60, cwd=Path(__file__).parents[3])
    trial = WrittenTrial(str(tmp_path / "run"))
    assert trial.names(2) == {"scalar/score"}
    assert trial.end_marker() is not None


def test_values_after_the_training_leave_a_later_run_alone(
    trial: WrittenTrial, caplog: Log
) -> None:
    hook = make_hook(trial)
    train(hook, rounds=2)
    hook.save_scalar("score", 0.5)
    train(make_hook(trial), rounds=3)
    hook.close()
    assert "scalar/score" not in trial.names(2)
    assert "scalar/score are not stored, because another run began" in caplog.text


def test_scalars_of_a_custom_objective_belong_to_the_round(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    rounds: list[float] = []

    def objective(predictions: Any, data: xgboost.DMatrix) -> tuple[Any, Any]:
        errors = predictions - data.get_label()
        rounds.append(float(np.abs(errors).max()))
        hook.save_scalar("largest", rounds[-1])
        return errors, np.ones_like(errors)

    train(hook, obj=objective)
    assert [trial.values(step)["scalar/largest"][0] for step in range(4)] == rounds


def test_modes(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    hook.set_mode(modes.TRAIN)
    train(hook, rounds=2)
    index = trial.indexes()[1]
    assert (index.mode, index.mode_step) == (modes.TRAIN, 1)


def test_without_metrics_and_data_nothing_is_written_but_the_end(trial: WrittenTrial) -> None:
    train(make_hook(trial), evals=[])
    assert trial.indexes() == {}


def test_a_loop_that_calls_the_callback_itself(trial: WrittenTrial) -> None:
    data = matrix()
    hook = make_hook(trial, "predictions", validation_data=data)
    booster = xgboost.Booster({"nthread": 1}, [data])
    for epoch in range(3):
        booster.update(data, epoch)
        assert (
            hook.after_iteration(booster, epoch, {"train": {"rmse": [1.0 / (epoch + 1)]}}) is False
        )
    hook.close()
    assert same(trial.values(2)["predictions"], booster.predict(data))
    assert trial.values(2)["train-rmse"][0] == 1 / 3


def test_an_exception_in_training_keeps_what_was_saved(trial: WrittenTrial) -> None:
    def fail(_: Any, epoch: int) -> None:
        if epoch == 2:
            raise KeyError("the script's own")

    hook = make_hook(trial)
    with pytest.raises(KeyError, match="the script's own"):
        train(Script(after=fail), hook)
    hook.close()
    assert sorted(trial.indexes()) == [0, 1]


def test_dry_run_writes_nothing(trial: WrittenTrial) -> None:
    train(Hook(trial.uri, dry_run=True, save_config=EVERY_ROUND))
    assert list(trial.store.list("")) == []
