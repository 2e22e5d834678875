"""Which of the measured data is trained on, told by identity and not by its name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import xgboost

from hook_layer.testing.written_trial import WrittenTrial
from hook_layer.xgboost import Hook
from hook_layer.xgboost.unchanged import _Trainings
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


def test_folds_have_no_data_of_which_it_is_known(trial: WrittenTrial) -> None:
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
    data = {name: matrix(rows=slice(50)) for name in ("training", "validation", "other")}
    made: list[Hook] = []

    def make(_: object) -> Hook:
        made.append(make_hook(trial))
        return made[0]

    source: Any = SimpleNamespace(make=make)
    given: dict[str, Any] = {"evals": [(data[name], name) for name in names]}
    _Trainings(source).add_hook(({}, data["training"]), given)
    assert given["callbacks"] == made
    assert made[0].validation_data is (None if expected is None else data[expected])
