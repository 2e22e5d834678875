"""Collections of a trial, and what a model is given and answers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hook_layer.capture.reductions import ReductionConfig
from hook_layer.configuration.collections import Collection as HookCollection
from hook_layer.configuration.save_config import SaveConfig, SaveConfigMode
from hook_layer.format.collections_file import CollectionEntry, CollectionsFile
from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import collections_key
from rule_runtime.testing import TrialBuilder
from rule_runtime.trial.refreshing import no_refresh
from rule_runtime.trial.stored_settings import (
    StoredReductionConfig,
    StoredSaveConfig,
    StoredSaveConfigMode,
)
from rule_runtime.trial.trial import Trial
from rule_runtime.trial.trial_collections import TrialCollection
from tests.rule_runtime.outcomes import make_run

RUNS = pytest.mark.parametrize("run", ["run-1", None])


def follow(builder: TrialBuilder) -> Trial:
    return Trial(builder.store, name="t")


@RUNS
def test_a_collection_has_what_its_regex_matches_later(run: str | None) -> None:
    builder = TrialBuilder(run=run)
    builder.collections(relu=("^relu", "named"), weights=("weight$",))
    builder.step(0, {"relu_0": [1.0]})
    trial = follow(builder)
    assert trial.collection("relu").tensor_names == {"relu_0"}
    builder.step(1, {"relu_1": [1.0], "fc.weight": [1.0]})
    assert trial.tensor_names(collection="relu") == ["relu_0", "relu_1"]
    assert trial.collection("relu").tensor_names == {"relu_0", "relu_1"}
    assert trial.collections()["weights"].tensor_names == {"fc.weight"}
    assert trial.tensor_names(collection=trial.collection("weights")) == ["fc.weight"]
    builder.collections(relu=("^relu",), mine=("fc",))  # a worker writes its file again
    builder.step(2, {"fc.weight": [1.0]})
    assert trial.collection("mine").tensor_names == {"fc.weight"}
    builder.collections(mine=("fc", "last"))
    builder.end()
    trial.refresh()
    assert trial.collection("mine").include_regex == ["fc", "last"]


def test_more_tensors_can_be_included_in_a_collection() -> None:
    builder = TrialBuilder()
    builder.collections(relu=("^relu",))
    builder.step(0, {"relu_0": [1.0], "tanh_0": [1.0], "w": [1.0]})
    trial = follow(builder)
    trial.collection("relu").include(["^tanh"])
    assert trial.tensor_names(collection="relu") == ["relu_0", "tanh_0"]
    assert trial.collection("relu").include_regex == ["^relu", "^tanh"]
    trial.collection("mine").include("w")
    assert trial.tensor_names(collection=trial.collection("mine")) == ["w"]
    assert follow(builder).tensor_names(collection="relu") == ["relu_0"]
    assert trial.tensor("w").has_step(0)
    assert not trial.tensor("w").has_step(1)
    with pytest.raises(re.error):
        trial.collection("mine").include("(")


def test_a_collections_file_that_comes_after_the_steps_is_found() -> None:
    builder = make_run({"a": [1.0]})
    trial = follow(builder)
    with no_refresh(trial):
        assert trial.tensor_names(collection="mine") == []
        builder.collections(mine=("^a",))
        assert trial.tensor_names(collection="mine") == []
    assert trial.tensor_names(collection="mine") == ["a"]


def test_a_collection_that_nobody_wrote() -> None:
    trial = follow(make_run({"gradient/a": [1.0], "a.bias": [2.0]}))
    assert trial.collections() == {}
    assert trial.collection("gradients").tensor_names == {"gradient/a"}
    assert trial.collection("mine").tensor_names == set()
    assert trial.tensor_names(collection="biases") == ["a.bias"]


def test_collections_of_all_workers_count() -> None:
    builder = TrialBuilder(num_workers=2)
    builder.collections(worker="worker_0", mine=("^a",))
    builder.collections(worker="worker_1", mine=("^b",), other=("^c",))
    builder.step(0, {"a": [1.0]})
    builder.step(0, {"b": [1.0], "c": [1.0]}, worker="worker_1")
    trial = follow(builder)
    assert trial.tensor_names(collection="mine") == ["a", "b"]
    assert trial.collection("mine").include_regex == ["^a", "^b"]
    assert trial.collection("other").tensor_names == {"c"}


def test_a_regex_that_is_refused_spoils_no_other_collection() -> None:
    trial = follow(make_run({"a": [1.0]}, collections={"bad": ("(a|aa)+$",), "good": ("^a",)}))
    assert trial.collection("good").tensor_names == {"a"}
    assert trial.collection("bad").tensor_names == set()


def test_what_was_not_saved_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    trial = follow(make_run({"a": [1.0]}))
    assert trial.tensor_names(regex=["x", ["y"]]) == []
    assert trial.tensor_names(collection="losses") == []
    assert "No tensors matching the regex pattern:['x', ['y']] given were saved" in caplog.text
    assert "No tensors from the collection losses were saved" in caplog.text
    with pytest.raises(TypeError, match="Invalid argument type for collection"):
        trial.tensor_names(collection=3)


def test_how_a_collection_was_saved_is_told_as_the_original_does() -> None:
    saved = {"save_interval": 3, "save_steps": [4], "start_step": 0, "end_step": 9}
    reduced = {"save_raw_tensor": False, "reductions": "mean,l2_norm,abs_max,abs_l1_norm"}
    entry = CollectionEntry("mine", (), (), {**reduced, "save_shape": True}, {"TRAIN": saved})
    builder = TrialBuilder()
    file = CollectionsFile({"mine": entry, "bare": CollectionEntry("bare")})
    builder.store.put(collections_key("worker_0"), file.encode())
    trial = follow(builder)
    mine = trial.collection("mine")
    assert mine.save_config is not None
    of_training = mine.save_config.get_save_config(ModeKeys.TRAIN)
    assert of_training is not None
    assert (of_training.save_interval, of_training.end_step) == (3, 9)
    steps = [step for step in range(12) if mine.save_config.should_save_step("train", step)]
    assert steps == [0, 3, 4, 6]
    assert mine.save_config.get_save_config(ModeKeys.EVAL) is None
    assert json.loads(mine.save_config.to_json())["TRAIN"] == saved
    config = mine.reduction_config
    assert config is not None
    assert (config.save_raw_tensor, config.save_shape) == (False, True)
    kinds = (config.reductions, config.norms, config.abs_reductions, config.abs_norms)
    assert kinds == (["mean"], ["l2"], ["max"], ["l1"])
    assert json.loads(config.to_json()) == {**reduced, "save_shape": True}
    bare = trial.collection("bare")
    assert (bare.save_config, bare.reduction_config) == (None, None)


def test_settings_that_are_none_spoil_no_collection() -> None:
    builder = TrialBuilder()
    odd = {"save_interval": 0, "save_steps": "all", "start_step": None, "end_step": -1}
    entry = CollectionEntry("mine", (), (), {"reductions": 3}, {"TRAIN": odd, "EVAL": []})
    file = CollectionsFile({"mine": entry})
    builder.store.put(collections_key("worker_0"), file.encode())
    mine = follow(builder).collection("mine")
    assert mine.save_config is not None
    assert [step for step in (0, 1, 500) if mine.save_config.should_save_step("TRAIN", step)] == [
        0,
        500,
    ]
    assert not mine.save_config.should_save_step("EVAL", 0)
    assert mine.reduction_config is not None
    assert mine.reduction_config.reductions == []


def test_a_collection_goes_to_json_and_back_as_the_hooks_does() -> None:
    hooks = HookCollection(
        "mine", "^a", ["a_0", "b"], ReductionConfig(["mean"], norms=["l2"]), SaveConfig({})
    )
    hooks.save_config = SaveConfig({ModeKeys.TRAIN: SaveConfigMode(3, 1, 9, [4])})
    builder = TrialBuilder()
    file = CollectionsFile({"mine": CollectionEntry(**hooks.to_json_dict())})
    builder.store.put(collections_key("worker_0"), file.encode())
    mine = follow(builder).collection("mine")
    assert mine.to_json_dict() == hooks.to_json_dict()
    assert json.loads(mine.to_json()) == mine.to_json_dict()
    assert HookCollection.from_json(mine.to_json()) == hooks
    assert TrialCollection.from_json(hooks.to_json()) == mine
    assert {mine: 1}[TrialCollection.from_dict(mine.to_json_dict())] == 1
    assert [mine.has_tensor_name(name) for name in ("b", "c")] == [True, False]
    bare = TrialCollection("bare")
    assert TrialCollection.from_json(bare.to_json()) == bare
    with pytest.raises(TypeError, match="must be a dict with the name of a collection"):
        TrialCollection.from_dict({"include_regex": []})


def test_settings_are_made_of_what_the_original_takes() -> None:
    mode = StoredSaveConfigMode.from_dict({"save_interval": 3}, {"end_step": 9})
    assert mode == StoredSaveConfigMode(3, end_step=9)
    assert StoredSaveConfigMode.from_dict(None) is None
    for given in ({"TRAIN": mode}, {ModeKeys.TRAIN: mode}, {"TRAIN": {"save_interval": 3}}):
        config = StoredSaveConfig.from_dict(given, {"end_step": 9})
        assert config is not None
        assert config.get_save_config("TRAIN") == mode
        assert config.get_save_config("EVAL") is None
        assert StoredSaveConfig.parse(config) is config
        assert StoredSaveConfig.from_json(config.to_json()) == config
        assert SaveConfig.from_json(config.to_json()) is not None
    assert StoredSaveConfig.from_dict(None) is None
    assert StoredSaveConfig.parse(mode).get_save_config("EVAL") == mode
    assert StoredSaveConfig.parse(None).should_save_step("EVAL", 500)
    assert StoredSaveConfig.parse({}).get_save_config("EVAL") is None
    reductions = StoredReductionConfig.from_dict({"reductions": "mean,l2_norm"})
    assert reductions == StoredReductionConfig(("mean", "l2_norm"))
    assert StoredReductionConfig.from_json(reductions.to_json()) == reductions
    assert StoredReductionConfig.from_dict(None) is None


@pytest.mark.parametrize(
    ("make", "given"),
    [
        (StoredSaveConfig.parse, 7),
        (StoredSaveConfig.from_json, "[]"),
        (StoredSaveConfig.from_dict, {"TRAIN": 7}),
        (StoredSaveConfigMode.from_dict, 7),
        (StoredReductionConfig.from_json, "7"),
        (TrialCollection.from_json, "[]"),
    ],
)
def test_settings_of_something_else(make: Callable[[Any], object], given: object) -> None:
    with pytest.raises(TypeError, match="must be a dict"):
        make(given)


# What a model is given ----------------------------------------------------------------------------


def test_inputs_labels_and_predictions_are_those_of_the_mode() -> None:
    builder = TrialBuilder()
    builder.collections(inputs=("^inputs",))
    for step, mode in enumerate([ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.TRAIN]):
        names = [f"inputs_{at}" for at in (10, 2, 0)]
        tensors = {name: np.float32([step, at]) for at, name in enumerate(names)}
        tensors["labels"] = np.float32([step])
        tensors["predictions"] = np.float32([-step])
        tensors["predictions_1/odd"] = np.float32([9])
        builder.step(step, tensors, mode=mode)
    trial = follow(builder)
    assert [value.tolist() for value in trial.inputs(2)] == [[2, 2], [2, 1], [2, 0]]
    assert next(iter(trial.inputs(1, ModeKeys.TRAIN))).tolist() == [2, 2]
    assert [value.tolist() for value in trial.labels(0, mode=ModeKeys.EVAL)] == [[1]]
    assert [value.tolist() for value in trial.predictions(1, mode=ModeKeys.TRAIN)] == [[-2], [9]]
    assert trial.inputs(7) == []


def test_what_the_collections_file_lacks_is_empty_whatever_names_look_alike() -> None:
    """As `weights` of XGBoost, whose tensors are called `feature_importance/weight/f0`."""
    builder = TrialBuilder()
    entry = CollectionEntry("feature_importance", include_regex=("^feature_importance/",))
    file = CollectionsFile({entry.name: entry}, num_workers=1)
    builder.store.put(collections_key("worker_0"), file.encode())
    builder.step(0, {"feature_importance/weight/f0": [1.0]})
    trial = follow(builder)
    assert trial.tensor_names(collection="weights") == []
    assert trial.collection("weights").tensor_names == set()
    assert trial.tensor_names(collection="all") == ["feature_importance/weight/f0"]
