"""Only metrics that are known to fall are losses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xgboost
from sklearn.metrics import accuracy_score

from hook_layer.testing.written_trial import WrittenTrial
from hook_layer.xgboost.directions import direction_of
from tests.hook_layer.xgboost.boosting import columns, make_hook, matrix, train


def members(trial: WrittenTrial, collection: str) -> set[str]:
    found = trial.collections().collections.get(collection)
    return set(found.tensor_names) if found is not None else set()


def own(name: str) -> Any:
    return lambda answers, data: (name, float(np.abs(answers - data.get_label()).mean()))


def trained(trial: WrittenTrial, name: str, *callbacks: Any, **arguments: Any) -> dict[str, bool]:
    """Train with a metric of the script's own; return the collections that it belongs to."""
    data = matrix()
    train(
        make_hook(trial, "losses"),
        *callbacks,
        data=data,
        evals=[(data, "data_0")],
        custom_metric=own(name),
        **arguments,
    )
    return {
        collection: f"data_0-{name}" in members(trial, collection)
        for collection in ("metrics", "losses", "falling_metrics", "growing_metrics")
    }


METRIC = {"metrics": True, "losses": False, "falling_metrics": False, "growing_metrics": False}


@pytest.mark.parametrize(
    ("name", "arguments", "more"),
    [
        *((name, {}, {}) for name in ("accuracy", "f1", "r2", "neg_rmse")),  # unknown directions
        *((name, {}, {"losses": True}) for name in ("my_loss", "PyRMSLE", "wmape")),
        ("loss_avoidance", {"maximize": True}, {"growing_metrics": True}),
        ("distance", {"maximize": False}, {"losses": True, "falling_metrics": True}),
        ("distance", {"early_stopping_rounds": 9}, {}),
    ],
)
def test_names_and_arguments_decide_whether_a_metric_is_a_loss(
    trial: WrittenTrial, name: str, arguments: dict[str, Any], more: dict[str, bool]
) -> None:
    assert trained(trial, name, **arguments) == METRIC | more


@pytest.mark.parametrize(("of", "decides"), [(None, True), ("distance", True), ("rmse", False)])
@pytest.mark.parametrize("grows", [True, False])
def test_early_stopping_decides_about_its_metric(
    trial: WrittenTrial, of: str | None, decides: bool, grows: bool
) -> None:
    callback = xgboost.callback.EarlyStopping(rounds=9, metric_name=of, maximize=grows)
    found = trained(trial, "distance", callback)
    words = {"losses": not grows, "falling_metrics": not grows, "growing_metrics": grows}
    assert found == METRIC | (words if decides else {})
    assert "data_0-rmse" in members(trial, "losses")


def test_what_is_said_is_of_the_last_metric_and_of_none_of_xgboosts() -> None:
    evaluations = {"train": {"rmse": [1.0], "first": [1.0], "last": [1.0]}}
    said = {"": True}
    found = [direction_of(name, evaluations, said) for name in ("rmse", "first", "last", "")]
    assert found == [None, None, True, None]
    assert direction_of("auc", {"train": {"auc": [0.5]}}, {"": False}) is None


def test_folds_have_directions_too(trial: WrittenTrial) -> None:
    xgboost.cv(
        {"nthread": 1},
        matrix(),
        2,
        nfold=2,
        custom_metric=own("distance"),
        maximize=False,
        callbacks=[make_hook(trial)],
    )
    assert members(trial, "falling_metrics") == {"train-distance", "test-distance"}


def test_a_function_of_scikit_learns_interface(trial: WrittenTrial) -> None:
    def accuracy(labels: Any, answers: Any) -> float:
        return float(accuracy_score(labels, answers > 0.5))

    features, labels = columns("breast_cancer")
    model = xgboost.XGBClassifier(
        n_estimators=2, n_jobs=1, eval_metric=accuracy, callbacks=[make_hook(trial, "losses")]
    )
    model.fit(features, labels, eval_set=[(features, labels)], verbose=False)
    assert "validation_0-accuracy" in members(trial, "metrics")
    assert members(trial, "losses") == {"validation_0-logloss"}


def test_metrics_of_rankings_have_a_sign_behind(trial: WrittenTrial) -> None:
    features, labels = columns("breast_cancer")
    model = xgboost.XGBRanker(
        n_estimators=2,
        n_jobs=1,
        eval_metric=["ndcg-", "map@5-", "map-"],
        callbacks=[make_hook(trial, "losses")],
    )
    rows = np.repeat(np.arange(57), 10)[: len(labels)]
    features, labels = features[: len(rows)], labels[: len(rows)]
    model.fit(
        features, labels, qid=rows, eval_set=[(features, labels)], eval_qid=[rows], verbose=False
    )
    assert members(trial, "losses") == set()
    assert len(members(trial, "metrics")) == 3
