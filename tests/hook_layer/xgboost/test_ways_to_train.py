"""What XGBoost can be asked to do, with a hook among the callbacks."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sklearn
import xgboost
from sklearn.model_selection import cross_val_score

from hook_layer.testing.written_trial import WrittenTrial
from hook_layer.xgboost import Hook, SaveConfig, modes
from tests.hook_layer.xgboost.boosting import (
    COMPUTED,
    EVERY_ROUND,
    Script,
    columns,
    make_hook,
    matrix,
    same,
    train,
)

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


def test_the_sklearn_interface(trial: WrittenTrial) -> None:
    features, labels = columns("breast_cancer")
    model = xgboost.XGBClassifier(
        n_estimators=4,
        n_jobs=1,
        eval_metric=["logloss", "auc", "aucpr"],
        callbacks=[make_hook(trial, "losses", "feature_importance")],
    )
    model.fit(features, labels, eval_set=[(features, labels)], verbose=False)
    results = model.evals_result()["validation_0"]
    for step in range(4):
        for metric, values in results.items():
            assert same(trial.values(step)[f"validation_0-{metric}"], [values[step]])
    # The original's expressions miss every name of this interface.
    collections = trial.collections().collections
    names = [f"validation_0-{metric}" for metric in ("auc", "aucpr", "logloss")]
    assert list(collections["metrics"].tensor_names) == names
    assert list(collections["losses"].tensor_names) == ["validation_0-logloss"]


def test_losses_alone_leave_the_growing_metrics_out(trial: WrittenTrial) -> None:
    data = matrix("breast_cancer")
    hook = make_hook(trial, "losses")
    hook.get_collection("metrics").save_config = SaveConfig(save_steps=[0], start_step=1000)
    parameters = {"objective": "binary:logistic", "eval_metric": ["auc", "logloss"]}
    train(hook, data=data, parameters=parameters)
    assert trial.names(3) == {"train-logloss"}


def test_a_copy_of_a_hook_is_no_hook(trial: WrittenTrial, caplog: Log) -> None:
    features, labels = columns("diabetes")
    hook = make_hook(trial)
    model = xgboost.XGBRegressor(n_estimators=3, n_jobs=1, callbacks=[hook])
    copies: list[Callable[[], xgboost.XGBRegressor]] = [
        lambda: sklearn.clone(model),
        lambda: copy.deepcopy(model),
        lambda: pickle.loads(pickle.dumps(model)),
    ]
    for make in copies:
        caplog.clear()
        make().fit(features, labels)
        assert "copy of a hook" in caplog.text
    cross_val_score(model, features, labels, cv=2)
    assert list(trial.store.list("")) == []
    model.fit(features, labels, eval_set=[(features, labels)], verbose=False)
    assert len(trial.indexes()) == 3
    assert "copy" in type(pickle.loads(pickle.dumps(model)).callbacks[0]).__name__.lower()


def test_cross_validation(trial: WrittenTrial, caplog: Log) -> None:
    data = matrix()
    hook = make_hook(
        trial, *COMPUTED, hyperparameters={"eta": 1}, train_data=data, validation_data=data
    )
    hook.get_collection("default").include("^std/")
    hook.collection_manager.include.update(("default", "hyperparameters"))
    table = xgboost.cv({"nthread": 1}, data, 3, nfold=3, callbacks=[hook])
    for step in range(3):
        found = trial.values(step)
        assert found.keys() == {
            *(f"{p}{d}-rmse" for p in ("", "std/") for d in ("train", "test")),
            "hyperparameters/eta",
            "labels",
        }
        assert same(found["test-rmse"], [table["test-rmse-mean"][step]])
        assert same(found["std/test-rmse"], [table["test-rmse-std"][step]])
    assert caplog.text.count("xgboost.cv trains one a fold") == 5  # once a collection
    assert not hook.report().errors
    assert trial.end_marker() is not None


def test_gblinear_has_no_trees(trial: WrittenTrial, caplog: Log) -> None:
    data = matrix()
    hook = make_hook(trial, *COMPUTED, train_data=data, validation_data=data)
    model = xgboost.train(
        {"booster": "gblinear", "nthread": 1}, data, 5, evals=[(data, "t")], callbacks=[hook]
    )
    assert same(trial.values(4)["predictions"], model.predict(data))
    assert same(trial.values(4)["full_shap/f0"], model.predict(data, pred_contribs=True))
    assert not any(re.match("trees|feature_imp", name) for name in trial.names(4))
    for collection in ("trees", "feature_importance"):
        message = f"{collection} cannot be saved: the booster gblinear has no trees"
        assert caplog.messages.count(message) == 1
    assert not hook.report().errors


def test_what_xgboost_cannot_do_costs_only_itself(trial: WrittenTrial, caplog: Log) -> None:
    features, labels = columns("diabetes")
    data = xgboost.DMatrix(features, np.stack([labels, -labels], axis=1))
    hook = make_hook(trial, *COMPUTED, train_data=data, validation_data=data)
    parameters = {"multi_strategy": "multi_output_tree"}
    model = train(hook, data=data, parameters=parameters, rounds=5)
    assert len(trial.indexes()) == 5
    assert same(trial.values(4)["predictions"], model.predict(data))
    assert hook.report().errors == {"trees": 3, "full_shap": 3, "average_shap": 3}
    assert caplog.text.count("switched off") == 3


def test_inputs_that_are_missing_are_named_once(trial: WrittenTrial, caplog: Log) -> None:
    train(make_hook(trial, "hyperparameters", *COMPUTED))
    for collection, argument in {
        "hyperparameters": "hyperparameters",
        "predictions": "validation_data",
        "labels": "validation_data",
        "average_shap": "train_data",
        "full_shap": "train_data",
    }.items():
        message = f"{collection} cannot be saved: give {argument}= to the hook"
        assert caplog.messages.count(message) == 1
    assert any(name.startswith("trees/") for name in trial.names(3))


def test_inputs_may_be_set_after_the_hook_was_made(trial: WrittenTrial) -> None:
    data = matrix()
    hook = make_hook(trial, "hyperparameters", "predictions")
    hook.hyperparameters = {"eta": 0.1}
    hook.validation_data = data
    train(hook, data=data)
    assert {"hyperparameters/eta", "predictions"} <= trial.names(0)


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
    assert sorted(trial.indexes()) == [0, 1, 2, 3, 4, 5]
    assert trial.names(5) == {"scalar/score"}
    assert trial.end_marker() is not None


def test_a_closed_hook_says_that_it_saves_nothing(trial: WrittenTrial, caplog: Log) -> None:
    hook = make_hook(trial)
    train(hook, rounds=2)
    train(hook, rounds=3)
    assert len(trial.indexes()) == 2
    assert "make a new hook" in caplog.text


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
