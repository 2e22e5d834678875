"""Only what is due is computed, and the model is the one that there would be without a hook."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import xgboost

from hook_layer.testing.written_trial import WrittenTrial
from hook_layer.xgboost import Hook, SaveConfig
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


def of_file(trial: WrittenTrial, folder: Path, **losses: str) -> Hook:
    """Return a hook by a file that asks for losses and predictions, each 4 rounds."""
    collections = {"losses": losses, "predictions": {}}
    configured = [
        {"CollectionName": name, "CollectionParameters": given}
        for name, given in collections.items()
    ]
    content = {
        "LocalPath": trial.uri,
        "HookParameters": {"save_interval": "4"},
        "CollectionConfigurations": configured,
    }
    file = folder / "hook.json"
    file.write_text(json.dumps({"DebugHookConfig": content}))
    return Hook.create_from_json_file(file)


@pytest.mark.parametrize("interval", [1, 2, 4])
def test_each_round_is_an_evaluation_too(
    trial: WrittenTrial, calls: list[str], tmp_path: Path, interval: int
) -> None:
    data = matrix("breast_cancer")
    hook = of_file(trial, tmp_path, **{"eval.save_interval": str(interval)})
    hook.validation_data = data
    parameters = {"objective": "binary:logistic", "eval_metric": ["logloss", "auc"]}
    train(hook, data=data, rounds=8, parameters=parameters)
    metrics = {"train-logloss", "train-auc"}
    assert sorted(trial.indexes()) == list(range(0, 8, interval))
    for step in trial.indexes():
        assert trial.names(step) == metrics | (set() if step % 4 else {"predictions"})
    assert calls == ["predict"] * 2


@pytest.mark.parametrize("given", [{}, {"eval.save_interval": "4"}, {"train.save_interval": "1"}])
def test_without_a_word_on_evaluation_the_interval_counts(
    trial: WrittenTrial, tmp_path: Path, given: dict[str, str]
) -> None:
    hook = of_file(trial, tmp_path, **given)
    hook.validation_data = matrix()
    train(hook, rounds=8)
    assert sorted(trial.indexes()) == [0, 4]


def test_a_long_training_is_saved_more_rarely_from_some_round_on(
    trial: WrittenTrial, tmp_path: Path
) -> None:
    hook = of_file(trial, tmp_path, **{"eval.save_interval": "1"})
    hook.validation_data = matrix()
    train(hook, rounds=110)
    assert sorted(trial.indexes()) == [*range(100), 100, 104, 108]


def test_metrics_may_ask_for_every_round(trial: WrittenTrial, tmp_path: Path) -> None:
    collections = [
        {"CollectionName": "losses", "CollectionParameters": {"save_interval": "3"}},
        {"CollectionName": "metrics", "CollectionParameters": {"eval.save_interval": "1"}},
    ]
    content = {"LocalPath": trial.uri, "CollectionConfigurations": collections}
    file = tmp_path / "hook.json"
    file.write_text(json.dumps({"DebugHookConfig": content}))
    data = matrix("breast_cancer")
    parameters = {"objective": "binary:logistic", "eval_metric": ["logloss", "auc"]}
    train(Hook.create_from_json_file(file), data=data, rounds=4, parameters=parameters)
    assert {step: len(trial.names(step)) for step in trial.indexes()} == dict.fromkeys(range(4), 2)


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
