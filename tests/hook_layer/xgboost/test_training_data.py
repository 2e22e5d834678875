"""Labels and weights of the training data, saved once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xgboost
from numpy.typing import NDArray

from hook_layer.testing.written_trial import WrittenTrial
from hook_layer.xgboost import Hook
from hook_layer.xgboost.training_data import TrainingData
from hook_layer.xgboost.unavailable import UnavailableError
from tests.hook_layer.xgboost.boosting import EVERY_ROUND, columns, make_hook, matrix, same, train

BINARY = {"objective": "binary:logistic", "nthread": 1}


class Parts(xgboost.DataIter):
    """Gives rows in two parts."""

    def __init__(self, features: NDArray[Any], labels: NDArray[Any]) -> None:
        self.parts = list(zip(np.array_split(features, 2), np.array_split(labels, 2), strict=True))
        self.at = 0
        super().__init__()

    def next(self, input_data: Any) -> bool:
        if self.at == len(self.parts):
            return False
        data, label = self.parts[self.at]
        input_data(data=data, label=label)
        self.at += 1
        return True

    def reset(self) -> None:
        self.at = 0


def saved(trial: WrittenTrial) -> dict[str, NDArray[Any]]:
    """Return the tensors of the collection by their field; each must be saved once."""
    found: dict[str, NDArray[Any]] = {}
    for step in trial.indexes():
        for name, value in trial.values(step).items():
            if name.startswith("training_data/"):
                assert name not in found
                found[name.removeprefix("training_data/")] = value
    return found


def test_labels_are_those_of_training_and_saved_once(trial: WrittenTrial) -> None:
    data, other = matrix(rows=slice(0, 300)), matrix(rows=slice(300, None))
    hook = make_hook(trial, "training_data", "labels", validation_data=other)
    train(hook, data=data, evals=[(data, "train"), (other, "validation")])
    assert saved(trial).keys() == {"Label"}
    assert same(saved(trial)["Label"], data.get_label())
    assert same(trial.values(0)["labels"], other.get_label())
    assert "training_data/Label" not in trial.collections().collections["labels"].tensor_names


@pytest.mark.parametrize("kind", ["plain", "quantile", "iterator", "sklearn", "without evals"])
def test_ways_to_give_the_data(trial: WrittenTrial, kind: str) -> None:
    features, labels = columns("diabetes")
    hook = make_hook(trial, "training_data")
    if kind == "sklearn":
        xgboost.XGBRegressor(n_estimators=3, callbacks=[hook], n_jobs=1).fit(features, labels)
    else:
        data = {
            "plain": lambda: xgboost.DMatrix(features, labels),
            "without evals": lambda: xgboost.DMatrix(features, labels),
            "quantile": lambda: xgboost.QuantileDMatrix(features, labels),
            "iterator": lambda: xgboost.QuantileDMatrix(Parts(features, labels)),
        }[kind]()
        train(hook, data=data, evals=[] if kind == "without evals" else [(data, "train")])
    assert same(saved(trial)["Label"], labels.astype(np.float32))


def test_labels_of_classes_are_integers(trial: WrittenTrial) -> None:
    features, labels = columns("iris")
    hook = make_hook(trial, "training_data")
    xgboost.XGBClassifier(n_estimators=2, callbacks=[hook], n_jobs=1).fit(features, labels)
    assert same(saved(trial)["Label"], labels.astype(np.uint8))


@pytest.mark.parametrize("is_custom", [False, True])
def test_numbers_are_no_classes(trial: WrittenTrial, is_custom: bool) -> None:
    features, labels = columns("iris")
    arguments: dict[str, Any] = {}
    if is_custom:
        arguments["obj"] = lambda margin, data: (margin - data.get_label(), np.ones_like(margin))
    train(make_hook(trial, "training_data"), data=xgboost.DMatrix(features, labels), **arguments)
    assert saved(trial)["Label"].dtype == np.float32


def test_folds_have_the_labels_of_all_rows(trial: WrittenTrial) -> None:
    data = matrix("breast_cancer")
    xgboost.cv(BINARY, data, 3, nfold=2, callbacks=[make_hook(trial, "training_data")])
    assert same(saved(trial)["Label"], data.get_label().astype(np.uint8))


def test_weights_include_the_scale_of_the_positive_class(trial: WrittenTrial) -> None:
    weights = np.linspace(1, 2, 569).astype(np.float32)
    data = matrix("breast_cancer", weight=weights)
    parameters = {"objective": "binary:logistic", "scale_pos_weight": 3}
    train(make_hook(trial, "training_data"), data=data, parameters=parameters)
    expected = np.where(data.get_label() == 1, np.float32(3), np.float32(1)) * weights
    assert same(saved(trial)["Weight"], expected)


def test_weights_of_groups_are_not_those_of_rows(trial: WrittenTrial) -> None:
    features, labels = columns("iris")
    data = xgboost.DMatrix(features, labels, weight=np.arange(1.0, 4.0), group=[50, 50, 50])
    train(make_hook(trial, "training_data"), data=data, parameters={"objective": "rank:pairwise"})
    assert saved(trial).keys() == {"Label"}


def test_several_trainings_in_one_block(trial: WrittenTrial) -> None:
    with make_hook(trial, "training_data") as hook:
        for rows in (slice(0, 200), slice(200, 442)):
            train(hook, data=matrix(rows=rows), rounds=2)
    sizes = [trial.values(step)["training_data/Label"].size for step in (0, 2)]
    assert sizes == [200, 242]


def test_labels_of_large_data_are_evenly_spaced() -> None:
    labels = np.zeros(600_000, np.float32)
    labels[333_333] = 1
    data = xgboost.DMatrix(np.zeros((labels.size, 1)), labels)
    rows = TrainingData()
    rows.begin({"dtrain": data, "params": BINARY})
    found = rows.tensors(None)["training_data/Label"]
    assert found.nbytes <= 1 << 20
    assert (found.min(), found.max()) == (0, 1)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, "the training data is unknown"),
        ({"dtrain": xgboost.DMatrix(np.zeros((2, 1)))}, "the training data has no labels"),
        (
            {"dtrain": xgboost.DMatrix(np.zeros((2, 1)), np.zeros(2)), "obj": max},
            "obj= may not use them",
        ),
    ],
)
def test_a_reason_is_given_without_labels(arguments: dict[str, Any], reason: str) -> None:
    rows = TrainingData()
    rows.begin(arguments)
    with pytest.raises(UnavailableError, match=reason):
        rows.tensors(None)


def test_a_collection_of_everything_leaves_them_out(trial: WrittenTrial) -> None:
    train(Hook(trial.uri, save_all=True, save_config=EVERY_ROUND))
    assert not saved(trial)
    assert not any(name.startswith("optimizer_steps/") for name in trial.names(0))
