"""Which evaluated data is training data: its content decides, and only then its name."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import xgboost

from hook_layer.testing.written_trial import WrittenTrial
from hook_layer.xgboost import Hook
from hook_layer.xgboost.evaluated_data import collection_of_metric, trained_on
from hook_layer.xgboost.unchanged import add_hook
from tests.hook_layer.xgboost.boosting import columns, make_hook, matrix, train


def sides(trial: WrittenTrial) -> tuple[set[str], set[str]]:
    collections = trial.collections().collections
    names = ("training_metrics", "validation_metrics")
    found = [collections[name].tensor_names if name in collections else () for name in names]
    return set(found[0]), set(found[1])


@pytest.mark.parametrize("is_first", [True, False])
def test_names_may_say_what_they_like(trial: WrittenTrial, is_first: bool) -> None:
    data, other = matrix(), matrix(rows=slice(50))
    evals = [(data, "eval"), (other, "train"), (other, "eval_2")]
    train(make_hook(trial), data=data, evals=evals if is_first else evals[::-1])
    assert sides(trial) == ({"eval-rmse"}, {"train-rmse", "eval_2-rmse"})


def test_scikit_learn_numbers_its_data(trial: WrittenTrial) -> None:
    features, labels = columns("diabetes")
    other = features[:50], labels[:50]
    model = xgboost.XGBRegressor(n_estimators=2, n_jobs=1, callbacks=[make_hook(trial)])
    model.fit(features, labels, eval_set=[(features, labels), other], verbose=False)
    assert sides(trial) == ({"validation_0-rmse"}, {"validation_1-rmse"})


def test_scikit_learn_with_arrays_of_another_type(trial: WrittenTrial) -> None:
    features, labels = columns("diabetes")
    sets = [(features.astype(np.float32), labels), (features[:50], labels[:50])]
    model = xgboost.XGBRegressor(n_estimators=2, n_jobs=1, callbacks=[make_hook(trial)])
    model.fit(features, labels, eval_set=sets, verbose=False)
    assert sides(trial) == ({"validation_0-rmse"}, {"validation_1-rmse"})


def quantiles(*arguments: Any, **named: Any) -> xgboost.DMatrix:
    return xgboost.QuantileDMatrix(*arguments, **named)


@pytest.mark.parametrize("made", [xgboost.DMatrix, quantiles])
@pytest.mark.parametrize("trained", [xgboost.DMatrix, quantiles])
@pytest.mark.parametrize("name", ["diabetes", "iris"])
def test_the_same_rows_in_another_object(
    name: str, trained: Callable[..., xgboost.DMatrix], made: Callable[..., xgboost.DMatrix]
) -> None:
    features, labels = columns(name)
    data, again = trained(features, labels), made(features, labels)
    assert trained_on(data, [(again, "any"), (matrix(name, slice(50)), "other")]) == [True, False]


@pytest.mark.parametrize("made", [xgboost.DMatrix, quantiles])
@pytest.mark.parametrize("labels", [np.repeat([0, 1], 60), np.tile([1, 0, 0], 40), np.ones(120)])
def test_labels_that_are_alike_make_no_data_the_same(
    labels: np.ndarray, made: Callable[..., xgboost.DMatrix]
) -> None:
    rng = np.random.default_rng(0)
    data, other = (made(rng.normal(size=(120, 4)), labels) for _ in range(2))
    assert trained_on(data, [(other, "validation_0")]) == [False]
    numbers = rng.normal(size=(120, 4))
    data, other = made(numbers, labels), made(numbers, labels[::-1])
    assert trained_on(data, [(other, "validation_0")]) == [bool((labels == 1).all())]


def test_rows_that_are_missing_or_spare_are_compared() -> None:
    features = np.random.default_rng(0).normal(size=(300, 5))
    features[features > 1] = np.nan
    other = np.where(np.isnan(features), 0.5, features)
    labels = np.arange(300) % 7
    data = xgboost.QuantileDMatrix(features, labels)
    evals = [(xgboost.DMatrix(features, labels), "a"), (xgboost.DMatrix(other, labels), "b")]
    assert trained_on(data, evals) == [True, False]


def test_a_name_decides_where_the_data_is_unknown() -> None:
    data, part, other = matrix(), matrix(rows=slice(100)), matrix(rows=slice(50))
    assert trained_on(data, [(part, "Training"), (other, "test")]) == [True, False]
    assert trained_on(data, [(part, "train"), (data, "all")]) == [False, True]
    assert trained_on(data, [(part, "trainer"), (other, "valid_train")]) == [False, False]


def test_data_that_cannot_be_looked_at_is_other_data() -> None:
    class Odd(xgboost.DMatrix):
        def get_label(self) -> Any:
            raise RuntimeError("there are none")

    features, labels = columns("diabetes")
    data = matrix()
    assert trained_on(data, [(Odd(features, labels), "x"), (object(), "y")]) == [False, False]
    assert trained_on(data, [(Odd(features, labels), "train")]) == [True]
    unlabelled = xgboost.DMatrix(features)
    assert trained_on(unlabelled, [(xgboost.DMatrix(features), "x")]) == [False]


def test_times_that_are_bounded_are_labels_too() -> None:
    features, labels = columns("diabetes")

    def bounded(upper: float) -> xgboost.DMatrix:
        bounds = {"label_lower_bound": labels, "label_upper_bound": labels + upper}
        return xgboost.DMatrix(features, **bounds)

    evals = [(bounded(1), "x"), (bounded(2), "y")]
    assert trained_on(bounded(1), evals) == [True, False]


def test_data_with_a_dash_in_its_name() -> None:
    known = {"my-data": True, "my": False, "other": False}
    assert collection_of_metric("my-data-rmse", known) == "training_metrics"
    assert collection_of_metric("my-rmse", known) == "validation_metrics"
    assert collection_of_metric("mine-rmse", known) is None


def test_the_data_of_folds_is_unknown(trial: WrittenTrial) -> None:
    xgboost.cv({"nthread": 1}, matrix(), 2, nfold=2, callbacks=[make_hook(trial)])
    assert sides(trial) == (set(), set())


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ((), None),
        (("training",), "training"),
        (("validation", "training"), "validation"),
        (("training", "validation"), "validation"),
        (("other", "validation", "training"), "validation"),
    ],
)
def test_what_an_unchanged_script_has_predicted_is_no_training_data(
    trial: WrittenTrial, names: tuple[str, ...], expected: str | None
) -> None:
    rows = {"training": slice(50), "validation": slice(50, 90), "other": slice(90, 120)}
    data = {name: matrix(rows=of) for name, of in rows.items()}
    made: list[Hook] = []

    def make(_: object) -> Hook:
        made.append(make_hook(trial))
        return made[0]

    source: Any = SimpleNamespace(make=make)
    given: dict[str, Any] = {"evals": [(data[name], name) for name in names]}
    add_hook(source, ({}, data["training"]), given)
    assert given["callbacks"] == made
    assert made[0].validation_data is (None if expected is None else data[expected])


def test_the_training_data_in_another_object_is_not_predicted(trial: WrittenTrial) -> None:
    hook = make_hook(trial)
    source: Any = SimpleNamespace(make=lambda _: hook)
    other = matrix(rows=slice(50))
    given: dict[str, Any] = {"evals": [(other, "x"), (matrix(), "y")]}
    add_hook(source, ({}, matrix()), given)
    assert hook.validation_data is other
