"""The original's configuration classes: what each of their names does. See `smdebug_api.py`."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import hook_layer.pytorch as smd
from hook_layer.configuration.collection_manager import CollectionManager
from hook_layer.errors import HookConfigurationError
from hook_layer.testing.written_trial import WrittenTrial
from tests.hook_layer.smdebug_api import Checks

TRAIN, EVAL = smd.modes.TRAIN, smd.modes.EVAL
does = Checks("Collection", "CollectionManager", "ReductionConfig", "SaveConfig", "SaveConfigMode")


# SaveConfig, SaveConfigMode -----------------------------------------------------------------------


@does("SaveConfigMode", "SaveConfigMode.should_save_step")
def test_listed_steps_and_those_of_the_interval_are_saved() -> None:
    config = smd.SaveConfigMode(3, 2, 10, [0, 20])
    assert [step for step in range(30) if config.should_save_step(step)] == [0, 3, 6, 9, 20]


@does("SaveConfigMode.to_json_dict", "SaveConfigMode.from_dict")
def test_one_mode_as_a_dict() -> None:
    config = smd.SaveConfigMode(save_interval="3", start_step=2, save_steps=[1])
    fields = {"save_interval": 3, "save_steps": [1], "start_step": 2, "end_step": None}
    assert config.to_json_dict() == fields
    assert smd.SaveConfigMode.from_dict(fields) == config
    assert smd.SaveConfigMode.from_dict({"end_step": 5}, {"save_interval": 7, "end_step": 6}) == (
        smd.SaveConfigMode(7, 0, 5)
    )
    assert smd.SaveConfigMode.from_dict(None) is None


@does("SaveConfig", "SaveConfig.get_save_config", "SaveConfig.set_save_config")
def test_one_configuration_for_all_modes_or_one_for_each() -> None:
    same = smd.SaveConfig(save_interval=2, start_step=1, end_step=9, save_steps=[0])
    assert all(same.get_save_config(m) == smd.SaveConfigMode(2, 1, 9, [0]) for m in smd.modes)
    config = smd.SaveConfig({TRAIN: smd.SaveConfigMode(save_interval=2)})
    with pytest.raises(ValueError, match="EVAL"):
        config.get_save_config(EVAL)
    config.set_save_config(EVAL, smd.SaveConfigMode(save_interval=5))
    assert config.get_save_config(EVAL).save_interval == 5
    with pytest.raises(ValueError, match="save_config_mode=3"):
        config.set_save_config(EVAL, 3)


@does("SaveConfig.should_save_step", "SaveConfig.merge_default_save_config")
def test_modes_that_are_missing_are_filled_from_a_default() -> None:
    config = smd.SaveConfig({TRAIN: smd.SaveConfigMode(save_interval=2)})
    config.merge_default_save_config(smd.SaveConfig(save_interval=3))
    assert config.should_save_step(TRAIN, 2)
    assert not config.should_save_step(TRAIN, 3)
    assert config.should_save_step(EVAL, 3)


@does("SaveConfig.to_json", "SaveConfig.to_json_dict", "SaveConfig.from_json")
@does("SaveConfig.from_dict", "SaveConfig.parse", "SaveConfig.from_save_config_mode")
def test_there_and_back() -> None:
    config = smd.SaveConfig({TRAIN: smd.SaveConfigMode(save_interval=2, save_steps=[7])})
    assert set(config.to_json_dict()) == {"TRAIN", "EVAL", "PREDICT", "GLOBAL"}
    assert smd.SaveConfig.from_json(config.to_json()) == config
    assert smd.SaveConfig.from_dict(config.to_json_dict()) == config
    assert smd.SaveConfig.from_dict({"TRAIN": {}}, {"save_interval": 4}) == (
        smd.SaveConfig({TRAIN: smd.SaveConfigMode(save_interval=4)})
    )
    assert smd.SaveConfig.parse(config) is config
    one = smd.SaveConfigMode(save_interval=3)
    assert smd.SaveConfig.from_save_config_mode(one) == smd.SaveConfig(save_interval=3)
    assert smd.SaveConfig.parse(None) == smd.SaveConfig(save_interval=500)


# ReductionConfig ----------------------------------------------------------------------------------


@does("ReductionConfig", "ReductionConfig.to_json", "ReductionConfig.to_json_dict")
@does("ReductionConfig.from_json", "ReductionConfig.from_dict")
def test_reductions_there_and_back() -> None:
    config = smd.ReductionConfig(["mean", "median"], ["max"], ["l1"], ["l2"], True, True)
    assert config.to_json_dict() == {
        "save_raw_tensor": True,
        "reductions": "mean,median,l1_norm,abs_max,abs_l2_norm",
        "save_shape": True,
    }
    assert smd.ReductionConfig.from_json(config.to_json()) == config
    assert smd.ReductionConfig.from_dict(config.to_json_dict()) == config
    assert smd.ReductionConfig.from_dict({"reductions": "l1, abs_l1_norm"}) == (
        smd.ReductionConfig(norms=["l1"], abs_norms=["l1"])
    )
    assert smd.ReductionConfig.from_dict(None) is None
    assert smd.ReductionConfig().to_json_dict()["save_raw_tensor"] is False


# Collection ---------------------------------------------------------------------------------------


@does("Collection", "Collection.to_json", "Collection.to_json_dict")
@does("Collection.from_json", "Collection.from_dict")
def test_a_collection_there_and_back() -> None:
    save, reduce = smd.SaveConfig(save_interval=2), smd.ReductionConfig(["mean"])
    collection = smd.Collection("x", ["a"], ["t", "s"], reduce, save, save_histogram=False)
    assert collection.to_json_dict() == {
        "name": "x",
        "include_regex": ["a"],
        "tensor_names": ["s", "t"],
        "reduction_config": reduce.to_json_dict(),
        "save_config": save.to_json_dict(),
        "save_histogram": False,
    }
    assert smd.Collection.from_json(collection.to_json()) == collection
    assert smd.Collection.from_dict({"name": "y"}) == smd.Collection("y")


@does("Collection.include", "Collection.add_tensor_name", "Collection.remove_tensor_name")
@does("Collection.has_tensor_name")
def test_what_belongs_to_a_collection() -> None:
    collection = smd.Collection("x", "single")
    collection.include("a$")
    collection.include(["b", "c"])
    assert collection.include_regex == ["single", "a$", "b", "c"]
    collection.add_tensor_name("t")
    assert collection.has_tensor_name("t")
    collection.remove_tensor_name("t")
    collection.remove_tensor_name("t")
    assert not collection.has_tensor_name("t")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("",), "name of a collection=''"),
        ((3,), "name of a collection=3"),
        (("x", 3), "include_regex=3"),
        (("x", ["("]), "not a regular expression"),
        (("x", ["x{99999999999}"]), "not a regular expression"),
        (("x", [3]), "not a regular expression"),
        (("x", None, "name"), "tensor_names='name'"),
        (("x", None, [3]), "tensor_names="),
        (("x", None, None, {"reductions": "mean"}), "must be a ReductionConfig"),
        (("x", None, None, None, 10), "save_config=10"),
    ],
)
def test_a_collection_that_makes_no_sense(arguments: Any, message: str) -> None:
    with pytest.raises(HookConfigurationError, match=message):
        smd.Collection(*arguments)


@does("Collection.add_module_tensors")
@pytest.mark.parametrize(
    ("wanted", "saved"),
    [
        ({}, {"relu_output_0"}),
        ({"inputs": True}, {"relu_input_0", "relu_output_0"}),
        ({"inputs": True, "outputs": False}, {"relu_input_0"}),
    ],
)
def test_inputs_and_outputs_of_a_module(wanted: dict[str, bool], saved: set[str]) -> None:
    out_dir = f"memory://add-module-tensors-{len(wanted)}-{len(saved)}/"
    hook = smd.Hook(out_dir, include_collections=["mine"])
    model = nn.Sequential()
    model.add_module("relu", nn.ReLU())
    hook.get_collection("mine").add_module_tensors(model[0], **wanted)
    hook.register_module(model)
    model(torch.ones(2))
    hook.close()
    assert WrittenTrial(out_dir).names(0) == saved


# CollectionManager --------------------------------------------------------------------------------


@does("CollectionManager.create_collection", "CollectionManager.get", "CollectionManager.add")
@does("CollectionManager.get_collections")
def test_collections_by_name() -> None:
    manager = CollectionManager()
    manager.create_collection("a")
    first = manager.get("a")
    manager.create_collection("a")
    manager.add("a")
    assert manager.get("a") is first
    manager.add(smd.Collection("a", ["other"]))
    assert manager.get("a").include_regex == ["other"]
    assert manager.get("b").name == "b"
    assert list(manager.get_collections()) == ["a", "b"]
    with pytest.raises(HookConfigurationError, match="Collection c has not been created"):
        manager.get("c", create=False)


@does("CollectionManager.export", "CollectionManager.load", "CollectionManager.load_from_string")
@does("CollectionManager.get_num_workers", "CollectionManager.set_num_workers")
@does("CollectionManager.update_meta")
@does("CollectionManager.to_json_dict")
def test_collections_are_written_and_read(tmp_path: Path) -> None:
    manager = CollectionManager()
    manager.add(smd.Collection("a", ["x"], ["t"], save_config=smd.SaveConfig(save_interval=3)))
    manager.set_num_workers(3)
    manager.update_meta({"num_workers": 4})
    manager.export(tmp_path, "worker_0_collections.json")
    path = tmp_path / "collections/000000000/worker_0_collections.json"
    loaded = CollectionManager.load(path)
    assert loaded.get_num_workers() == 4
    assert loaded.to_json_dict() == manager.to_json_dict() == json.loads(path.read_text())
    assert loaded.get("a").save_config == smd.SaveConfig(save_interval=3)
    assert loaded == manager
    assert CollectionManager.load_from_string(path.read_text()).get("a") == loaded.get("a")
    loaded.get("a").include("y")
    assert loaded != manager
    with pytest.raises(HookConfigurationError, match="neither collections nor _meta"):
        CollectionManager.load_from_string('{"x": 1}')
    with pytest.raises(HookConfigurationError, match="'x'; give num_workers"):
        manager.update_meta({"x": 1})


# All of them --------------------------------------------------------------------------------------


def test_every_name_is_used_by_a_test() -> None:
    assert does.missing == set()


@given(
    st.text(max_size=30)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["TRAIN", "name", "save_interval", "save_steps", "reductions"]),
                inner,
                max_size=3,
            )
        ),
        max_leaves=5,
    ).map(json.dumps)
)
def test_any_text_is_read_or_refused(text: str) -> None:
    readers = (smd.SaveConfig, smd.ReductionConfig, smd.Collection)
    for reader in readers:
        try:
            made = reader.from_json(text)
        except HookConfigurationError:
            continue
        assert made is None or type(made).from_json(made.to_json()) == made
    with contextlib.suppress(HookConfigurationError):
        CollectionManager.load_from_string(text)
