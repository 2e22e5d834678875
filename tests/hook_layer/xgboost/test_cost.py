"""Only what is due is computed, and the model is the one that there would be without a hook."""

from __future__ import annotations

from typing import Any

import pytest
import xgboost

from hook_layer.testing.written_trial import WrittenTrial
from hook_layer.xgboost import SaveConfig
from tests.hook_layer.xgboost.boosting import COMPUTED, make_hook, matrix, train


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the booster's expensive methods, as they are called."""
    made: list[str] = []

    def spy(name: str) -> None:
        original = getattr(xgboost.Booster, name)

        def method(self: xgboost.Booster, *args: Any, **kwargs: Any) -> Any:
            made.append("contributions" if kwargs.get("pred_contribs") else name)
            return original(self, *args, **kwargs)

        monkeypatch.setattr(xgboost.Booster, name, method)

    for name in ("predict", "get_score", "trees_to_dataframe", "get_dump", "save_config"):
        spy(name)
    return made


def test_nothing_is_computed_that_is_not_included(trial: WrittenTrial, calls: list[str]) -> None:
    data = matrix()
    train(make_hook(trial, train_data=data, validation_data=data), data=data)
    assert calls == []


def test_nothing_is_computed_in_other_rounds(trial: WrittenTrial, calls: list[str]) -> None:
    data = matrix()
    hook = make_hook(trial, *COMPUTED, train_data=data, validation_data=data)
    for name in COMPUTED:
        hook.get_collection(name).save_config = SaveConfig(save_interval=5)
    train(hook, data=data, rounds=10)
    # Rounds 0 and 5. SHAP values are computed once for both of their collections.
    assert calls.count("predict") == 2
    assert calls.count("contributions") == 2
    assert calls.count("get_score") == 2 * 5
    assert calls.count("trees_to_dataframe") == 2
    assert len(trial.indexes()) == 10


def test_only_the_kinds_of_importance_that_are_asked_for(
    trial: WrittenTrial, calls: list[str]
) -> None:
    train(make_hook(trial, include_regex="^feature_importance/gain/"))
    assert calls.count("get_score") == 4
    assert {name.rpartition("/")[0] for name in trial.names(3)} == {"", "feature_importance/gain"}


def test_a_collection_of_ones_own_gets_what_it_names(trial: WrittenTrial, calls: list[str]) -> None:
    data = matrix()
    hook = make_hook(trial, "mine", validation_data=data)
    hook.get_collection("mine").include("^predictions$")
    train(hook, data=data)
    assert calls == ["predict"] * 4
    assert trial.names(3) == {"train-rmse", "predictions"}


def test_nothing_is_computed_where_hooks_are_off(
    trial: WrittenTrial, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USE_SMDEBUG", "0")
    data = matrix()
    hook = make_hook(trial, save_all=True, train_data=data, validation_data=data)
    train(hook, data=data)
    assert calls == []
    assert list(trial.store.list("")) == []


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("diabetes", {"subsample": 0.5, "colsample_bytree": 0.5, "seed": 3}),
        ("diabetes", {"booster": "dart", "rate_drop": 0.3, "skip_drop": 0.2}),
        ("diabetes", {"booster": "gblinear", "updater": "coord_descent", "max_depth": None}),
        ("diabetes", {"tree_method": "exact"}),
        ("diabetes", {"tree_method": "approx", "objective": "reg:absoluteerror"}),
        ("iris", {"objective": "multi:softprob", "num_class": 3, "num_parallel_tree": 2}),
    ],
    ids=["sampled", "dart", "linear", "exact", "adaptive", "classes"],
)
def test_the_model_is_the_same_with_and_without_a_hook(
    trial: WrittenTrial, name: str, parameters: dict[str, Any]
) -> None:
    data = matrix(name)
    validation = matrix(name, slice(0, 50))
    given = {"parameters": parameters, "evals": [(data, "train"), (validation, "validation")]}
    results: list[dict[str, Any]] = [{}, {}]
    plain = train(data=data, evals_result=results[0], rounds=8, **given)
    hook = make_hook(trial, save_all=True, train_data=data, validation_data=validation)
    watched = train(hook, data=data, evals_result=results[1], rounds=8, **given)
    assert watched.save_raw("json") == plain.save_raw("json")
    assert results[0] == results[1]
    assert len(trial.indexes()) == 8
