"""Names and values of what is captured, against XGBoost's own answers about the same model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xgboost

from hook_layer.capture.captured_step import StepRecord
from hook_layer.delivery.writer import StepWriter
from hook_layer.testing.written_trial import WrittenTrial
from hook_layer.xgboost import Hook, ReductionConfig, SaveConfig
from tests.hook_layer.xgboost.boosting import (
    COMPUTED,
    EVERY_ROUND,
    KINDS,
    Script,
    make_hook,
    matrix,
    same,
    train,
)


def test_a_round_is_a_step_and_metrics_are_saved_unasked(trial: WrittenTrial) -> None:
    results: dict[str, Any] = {}
    hook = make_hook(trial, save_config=None)
    train(hook, rounds=21, evals_result=results)
    assert sorted(trial.indexes()) == [0, 10, 20]
    for step in trial.indexes():
        assert trial.names(step) == {"train-rmse"}
        assert same(trial.values(step)["train-rmse"], [results["train"]["rmse"][step]])
    assert hook.report().steps_seen == 21


def test_metrics_of_several_data_sets(trial: WrittenTrial) -> None:
    results: dict[str, Any] = {}
    data = matrix("breast_cancer", slice(0, 400))
    other = matrix("breast_cancer", slice(400, None))
    train(
        make_hook(trial),
        data=data,
        parameters={"objective": "binary:logistic", "eval_metric": ["auc", "logloss", "error@0.7"]},
        evals=[(data, "train"), (other, "eval_set")],
        evals_result=results,
    )
    for step in range(4):
        found = {name: float(value[0]) for name, value in trial.values(step).items()}
        expected = {f"{d}-{m}": v[step] for d, ms in results.items() for m, v in ms.items()}
        assert found == expected
    of_metrics = trial.collections().collections["metrics"].tensor_names
    assert set(of_metrics) == set(found)


@pytest.fixture(
    params=[
        ("diabetes", {}),
        ("diabetes", {"booster": "dart", "rate_drop": 0.5}),
        ("breast_cancer", {"objective": "binary:logistic"}),
        ("iris", {"objective": "multi:softprob", "num_class": 3}),
        ("iris", {"objective": "multi:softprob", "num_class": 3, "num_parallel_tree": 2}),
    ],
    ids=["regression", "dart", "binary", "classes", "forest"],
)
def training(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    name, parameters = request.param
    return name, parameters


def test_what_is_computed_from_the_model(
    trial: WrittenTrial, training: tuple[str, dict[str, Any]]
) -> None:
    name, parameters = training
    data, validation = matrix(name), matrix(name, slice(0, 60))
    rounds: list[dict[str, Any]] = []
    script = Script(after=lambda m, e: rounds.append(said_by_xgboost(m, e, data, validation)))
    hook = make_hook(trial, *COMPUTED, train_data=data, validation_data=validation)
    train(script, hook, data=data, parameters=parameters)
    for step, expected in enumerate(rounds):
        found = trial.values(step)
        del found[next(n for n in found if n.startswith("train-"))]
        assert found.keys() == expected.keys()
        for tensor, value in expected.items():
            if tensor.startswith("average_shap/"):
                np.testing.assert_allclose(found[tensor], value, rtol=1e-5, atol=1e-6)
                assert found[tensor].dtype == np.float32
            else:
                assert same(found[tensor], value), tensor


def said_by_xgboost(
    model: xgboost.Booster, epoch: int, data: xgboost.DMatrix, validation: xgboost.DMatrix
) -> dict[str, Any]:
    """Return the expected tensors, from the whole model."""
    shap = model.predict(data, pred_contribs=True)
    names = [f"f{i}" for i in range(data.num_col())]
    expected: dict[str, Any] = {
        "predictions": model.predict(validation),
        "labels": validation.get_label(),
    }
    for kind in KINDS:
        scores = model.get_score(importance_type=kind)
        total = np.sum(list(scores.values()))
        expected |= {f"feature_importance/{kind}/{f}": [s / total] for f, s in scores.items()}
    expected |= {f"full_shap/{f}": shap for f in names}
    averages = shap.reshape(-1, shap.shape[-1]).astype(np.float64).mean(axis=0)
    expected |= {f"average_shap/{f}": [averages[i]] for i, f in enumerate(names)}
    frame = model.trees_to_dataframe()
    frame = frame[frame.Tree >= epoch * (frame.Tree.nunique() // (epoch + 1))]
    for name in frame.columns:
        if name in ("ID", "Feature", "Yes", "No", "Missing", "Category"):
            expected[f"trees/{name}"] = frame[name].astype(object).fillna("nan").to_numpy(np.str_)
        else:
            dtype = np.int64 if name in ("Tree", "Node") else np.float64
            expected[f"trees/{name}"] = frame[name].to_numpy(dtype)
    return expected


def test_hyperparameters_of_every_kind(trial: WrittenTrial) -> None:
    given = {
        "eta": 0.3,
        "max_depth": 6,
        "subsample": np.float32(0.5),
        "enable_categorical": True,
        "objective": "reg:squarederror",
        "eval_metric": ["rmse", "mae"],
        "monotone_constraints": (1, 0, -1),
        "interaction_constraints": [[0, 1], [2]],
        "names": [["a", "b"], ["c", "d"]],
        "base_score": None,
        "feature_weights": {"age": 2},
        "huge": 10**30,
        "bytes": b"\xff",
        "nothing": [],
    }
    train(make_hook(trial, "hyperparameters", hyperparameters=given), rounds=1)
    found = {n.removeprefix("hyperparameters/"): v for n, v in trial.values(0).items()}
    assert same(found["eta"], [0.3])
    assert same(found["max_depth"], [6])
    assert same(found["subsample"], np.array([0.5], np.float32))
    assert same(found["enable_categorical"], [True])
    assert same(found["monotone_constraints"], [1, 0, -1])
    texts = {n: v.tolist() for n, v in found.items() if v.dtype.kind in "OU"}
    assert texts == {
        "objective": ["reg:squarederror"],
        "eval_metric": ["rmse", "mae"],
        "interaction_constraints": ["[[0, 1], [2]]"],
        "names": ["[['a', 'b'], ['c', 'd']]"],
        "base_score": ["None"],
        "feature_weights": ["{'age': 2}"],
        "huge": [str(10**30)],
        "bytes": [str(b"\xff")],
    }
    assert "hyperparameters/nothing" in trial.names(0)


@pytest.mark.parametrize(
    ("wanted", "count"),
    [({"include_collections": ["full_shap"]}, 10), ({"include_regex": "f3$"}, 1)],
)
def test_the_shared_matrix_is_held_once(
    trial: WrittenTrial, monkeypatch: pytest.MonkeyPatch, wanted: dict[str, Any], count: int
) -> None:
    data = matrix()
    hook = Hook(trial.uri, save_config=EVERY_ROUND, train_data=data, **wanted)
    held: list[int] = []
    submit = StepWriter.submit

    def note(writer: StepWriter, record: StepRecord) -> None:
        held.append(record.nbytes)
        submit(writer, record)

    monkeypatch.setattr(StepWriter, "submit", note)
    train(hook, data=data, rounds=1)
    names = [name for name in trial.names(0) if name.startswith("full_shap/")]
    assert len(names) == count
    assert 442 * 11 * 4 < held[0] < 2 * 442 * 11 * 4
    rows = [trial.statistics(0)[name] for name in names]
    assert all(row == rows[0] for row in rows)
    assert rows[0]["size"] == 442 * 11


def test_statistics_and_reductions_without_values(trial: WrittenTrial) -> None:
    data = matrix()
    hook = make_hook(
        trial,
        "predictions",
        "full_shap",
        train_data=data,
        validation_data=data,
        reduction_config=ReductionConfig(reductions=["max"], norms=["l2"]),
    )
    model = train(hook, data=data, rounds=1)
    predictions = model.predict(data)
    found = trial.values(0)
    assert found["smdebug/reductions/max/predictions"] == predictions.max()
    assert found["smdebug/reductions/l2/predictions"] == pytest.approx(np.linalg.norm(predictions))
    assert "predictions" not in found
    assert trial.statistics(0)["predictions"]["mean"] == pytest.approx(predictions.mean())
    assert found["train-rmse"].shape == (1,)  # metrics are saved as they are


def test_collections_have_their_own_intervals(trial: WrittenTrial) -> None:
    data = matrix()
    hook = make_hook(trial, "average_shap", train_data=data)
    hook.get_collection("average_shap").save_config = SaveConfig(save_steps=[2], start_step=100)
    train(hook, data=data)
    assert [len(trial.names(step)) for step in range(4)] == [1, 1, 11, 1]
