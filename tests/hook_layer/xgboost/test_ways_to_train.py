"""What XGBoost can be asked to do, with a hook among the callbacks."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable

import numpy as np
import pytest
import sklearn
import xgboost
from sklearn.model_selection import cross_val_score

from hook_layer.testing.written_trial import WrittenTrial
from hook_layer.xgboost import SaveConfig
from tests.hook_layer.xgboost.boosting import (
    COMPUTED,
    columns,
    make_hook,
    matrix,
    same,
    train,
)

Log = pytest.LogCaptureFixture


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
    (message,) = caplog.messages
    assert message.startswith(
        "predictions, feature_importance, average_shap, full_shap, trees cannot"
    )
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
    message = "feature_importance, trees cannot be saved: the booster gblinear has no trees"
    assert caplog.messages == [message]
    assert not hook.report().errors


def test_what_xgboost_cannot_do_costs_only_itself(trial: WrittenTrial, caplog: Log) -> None:
    features, labels = columns("diabetes")
    data = xgboost.DMatrix(features, np.stack([labels, -labels], axis=1))
    hook = make_hook(trial, *COMPUTED, train_data=data, validation_data=data)
    parameters = {"multi_strategy": "multi_output_tree"}
    model = train(hook, data=data, parameters=parameters, rounds=5)
    assert len(trial.indexes()) == 5
    assert same(trial.values(4)["predictions"], model.predict(data))
    errors = hook.report().errors
    assert set(errors.values()) <= {3}
    assert caplog.text.count("switched off") == len(errors)
    if xgboost.__version__.startswith("3.2."):
        assert errors.keys() == {"trees", "full_shap", "average_shap"}


def test_importances_that_crash_old_versions_are_not_asked_for(
    trial: WrittenTrial, caplog: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hook_layer.xgboost.tensors._KNOWS_VECTOR_LEAVES", False)
    monkeypatch.setattr(xgboost.Booster, "get_score", lambda *_, **__: pytest.exit("crashed"))
    features, labels = columns("diabetes")
    data = xgboost.DMatrix(features, np.stack([labels, -labels], axis=1))
    hook = make_hook(trial, "feature_importance")
    train(hook, data=data, parameters={"multi_strategy": "multi_output_tree"})
    assert trial.names(3) == {"train-rmse"}
    assert caplog.text.count("need XGBoost 3") == 1


def test_inputs_that_are_missing_are_named_once(trial: WrittenTrial, caplog: Log) -> None:
    train(make_hook(trial, "hyperparameters", *COMPUTED))
    validation = "pass validation_data= to the hook, or evals= to the training"
    assert caplog.messages == [
        "hyperparameters cannot be saved: pass hyperparameters= to the hook",
        f"predictions, labels cannot be saved: {validation}",
        "average_shap, full_shap cannot be saved: pass train_data= to the hook",
    ]
    assert any(name.startswith("trees/") for name in trial.names(3))


def test_inputs_may_be_set_after_the_hook_was_made(trial: WrittenTrial) -> None:
    data = matrix()
    hook = make_hook(trial, "hyperparameters", "predictions")
    hook.hyperparameters = {"eta": 0.1}
    hook.validation_data = data
    train(hook, data=data)
    assert {"hyperparameters/eta", "predictions"} <= trial.names(0)
