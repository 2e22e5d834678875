"""Data and models of many kinds: names, categories, targets, groups, earlier models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import xgboost
from scipy.sparse import csr_matrix

from hook_layer.testing.written_trial import WrittenTrial
from tests.hook_layer.xgboost.boosting import COMPUTED, columns, cut, make_hook, matrix, same, train


def test_odd_names_of_features(trial: WrittenTrial) -> None:
    names = [
        "a b=1,2",
        "weird:{x}",
        "größe",
        "with/slash",
        "class",
        "bias",
        "f0",
        "it's",
        "%",
        "x-y",
    ]
    data = matrix(feature_names=names)
    model = train(make_hook(trial, *COMPUTED, train_data=data, validation_data=data), data=data)
    found = trial.names(3)
    assert {f"average_shap/{name}" for name in names} <= found
    assert {f"full_shap/{name}" for name in names} <= found
    used = {f"feature_importance/gain/{name}" for name in model.get_score(importance_type="gain")}
    assert used <= found
    bias = names.index("bias")
    expected = model.predict(data, pred_contribs=True)[:, bias].astype(np.float64).mean()
    assert trial.values(3)["average_shap/bias"][0] == pytest.approx(expected, rel=1e-5)
    assert set(trial.collections().collections["average_shap"].tensor_names) == {
        f"average_shap/{name}" for name in names
    }


def test_the_bias_is_saved_where_it_is_asked_for(trial: WrittenTrial) -> None:
    data = matrix()
    hook = make_hook(trial, include_regex="^average_shap/bias$", train_data=data)
    model = train(hook, data=data)
    assert trial.names(3) == {"train-rmse", "average_shap/bias"}
    bias = model.predict(data, pred_contribs=True)[0, -1]
    assert trial.values(3)["average_shap/bias"][0] == pytest.approx(bias)


def test_categories_of_a_split(trial: WrittenTrial) -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 6, (200, 1)).astype(np.float32)
    data = xgboost.DMatrix(codes, codes[:, 0] % 2, feature_types=["c"], enable_categorical=True)
    parameters = {"max_cat_to_onehot": 1}
    model = train(make_hook(trial, "trees"), data=data, parameters=parameters, rounds=1)
    expected = [
        ",".join(map(str, categories)) if isinstance(categories, list) else "nan"
        for categories in model.trees_to_dataframe().Category
    ]
    assert any("," in categories for categories in expected)
    assert trial.values(0)["trees/Category"].tolist() == expected


def test_several_targets(trial: WrittenTrial) -> None:
    features, labels = columns("diabetes")
    targets = np.stack([labels, -labels], axis=1).astype(np.float32)
    data = xgboost.DMatrix(features, targets)
    model = train(make_hook(trial, "predictions", "labels", validation_data=data), data=data)
    assert same(trial.values(3)["predictions"], model.predict(data))
    assert same(trial.values(3)["labels"], targets)


def test_a_ranking_with_base_margins(trial: WrittenTrial) -> None:
    data = matrix(qid=np.arange(442) // 20, base_margin=np.linspace(0, 1, 442))
    data.set_label(np.arange(442) % 4)
    hook = make_hook(trial, *COMPUTED, train_data=data, validation_data=data)
    model = train(hook, data=data, parameters={"objective": "rank:ndcg"})
    assert same(trial.values(3)["predictions"], model.predict(data))
    assert same(trial.values(3)["full_shap/f0"], model.predict(data, pred_contribs=True))
    assert not hook.report().errors


def test_quantile_matrices(trial: WrittenTrial) -> None:
    features, labels = columns("diabetes")
    data = xgboost.QuantileDMatrix(features, labels)
    hook = make_hook(trial, *COMPUTED, train_data=data, validation_data=data)
    model = train(hook, data=data)
    assert same(trial.values(3)["predictions"], model.predict(data))
    assert same(trial.values(3)["labels"], labels.astype(np.float32))
    assert same(trial.values(3)["full_shap/f0"], model.predict(data, pred_contribs=True))


@pytest.mark.parametrize("kind", [xgboost.DMatrix, csr_matrix])
def test_values_of_inputs_are_those_of_the_validation_data(
    trial: WrittenTrial, kind: Callable[..., Any]
) -> None:
    features = columns("diabetes")[0].astype(np.float32)
    features[3, 2], features[4, 1] = np.nan, 0.0
    data = kind(features)
    data = data if isinstance(data, xgboost.DMatrix) else xgboost.DMatrix(data)
    train(make_hook(trial, include_regex="^input_values$", validation_data=data))
    # What a sparse matrix leaves out is missing, as XGBoost takes it.
    expected = np.where(features == 0, np.nan, features) if kind is csr_matrix else features
    assert same(trial.values(3)["input_values"], expected)


@pytest.mark.parametrize("option", [{"save_all": True}, {"include_regex": ".*"}])
def test_values_of_inputs_are_not_among_everything(
    trial: WrittenTrial, option: dict[str, Any]
) -> None:
    data = xgboost.DMatrix(*columns("diabetes"))
    train(make_hook(trial, validation_data=data, **option))
    assert "labels" in trial.names(3)
    assert "input_values" not in trial.names(3)


@pytest.mark.parametrize("kind", [xgboost.DMatrix, xgboost.QuantileDMatrix])
def test_values_of_the_first_rows_of_large_inputs(
    trial: WrittenTrial,
    kind: Callable[..., Any],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hook_layer.xgboost.data._MOST_ELEMENTS", 99)
    features, _ = columns("diabetes")
    hook = make_hook(trial, include_regex="^input_values$", validation_data=kind(features))
    train(hook)
    assert not hook.report().errors
    if kind is xgboost.DMatrix:
        assert same(trial.values(3)["input_values"], features[:9].astype(np.float32))
    else:  # it cannot be cut
        assert "input_values" not in trial.names(3)
        assert caplog.text.count("validation_data is too large and cannot be cut") == 1


def test_the_trees_of_a_continued_model(trial: WrittenTrial) -> None:
    data = matrix()
    first = train(data=data, rounds=3)
    model = train(make_hook(trial, "trees"), data=data, rounds=2, xgb_model=first)
    assert sorted(trial.indexes()) == [0, 1]
    frame = model.trees_to_dataframe()
    for step in (0, 1):
        assert set(trial.values(step)["trees/Tree"]) == {3 + step}
        assert trial.values(step)["trees/ID"].tolist() == frame[frame.Tree == 3 + step].ID.tolist()
    assert cut(model, 3).get_dump() == first.get_dump()
