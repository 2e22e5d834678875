"""What a hook captures, and how it gets on with its store."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

from hook_layer.configuration.collections import Collection
from hook_layer.configuration.save_config import SaveConfig, SaveConfigMode
from hook_layer.format.index import IndexFile, TensorShape
from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import JOB_FILE, index_key
from hook_layer.storage.base import StorageError
from hook_layer.testing.written_trial import WrittenTrial
from tests.hook_layer.tiny_hook import W, make_hook

# One bad tensor ------------------------------------------------------------------------------

BAD = [[1, 2], [3]]


def test_a_bad_tensor_costs_nothing_but_itself(
    trial: WrittenTrial, caplog: pytest.LogCaptureFixture
) -> None:
    hook = make_hook(trial)
    for step in range(6):
        hook.train(W)
        hook.save_tensor("ragged", {step} if step % 2 else BAD)
        hook.save_scalar("a\ud800", step)
        hook.save_tensor("x" * 2000, np.ones(1))
        hook.save_scalar("lr", step)
    hook.close()
    assert list(trial.indexes()) == list(range(6))
    assert all("w" in trial.names(step) for step in range(6))
    assert [trial.values(s)["scalar/lr"].item() for s in range(6)] == list(range(6))
    report = hook.report()
    assert report.errors.keys() <= {"tensors"}
    assert report.errors["tensors"] >= 12
    assert 2 <= sum("skipped" in record.message for record in caplog.records) <= 4
    assert trial.collections().collections["default"].tensor_names in {(), ("ragged",)}


def test_a_bad_tensor_leaves_those_captured_with_it(trial: WrittenTrial) -> None:
    class Odd:
        def __array__(self, *_: object, **__: object) -> np.ndarray:
            raise RuntimeError("no value")

    hook = make_hook(trial)
    for _ in range(4):
        hook.train({"w_0": np.ones(2), "w_bad": Odd(), "w_1": np.full(2, 3.0)})
    hook.close()
    for step in range(4):
        assert trial.names(step) == {"w_0", "w_1"}
        assert trial.statistics(step)["w_1"]["max"] == 3
    assert hook.report().errors == {"tensors": 4}


@pytest.mark.parametrize("is_included", [False, True])
def test_a_collection_that_is_looked_up_in_training_costs_nothing(
    trial: WrittenTrial, caplog: pytest.LogCaptureFixture, is_included: bool
) -> None:
    hook = make_hook(trial)
    hook.train(W)
    hook.get_collection("typo")
    if is_included:
        hook.collection_manager.include.add("typo")
    for _ in range(4):
        hook.train(W)
    hook.close()
    assert list(trial.indexes()) == [0, 1, 2, 3, 4]
    assert all("w" in trial.names(step) for step in range(5))
    assert hook.report().errors == ({"configuration": 1} if is_included else {})
    assert sum("typo" in record.message for record in caplog.records) == is_included


# When -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("of_hook", [True, False])
@pytest.mark.parametrize(
    ("mode", "saved"),
    [(None, [0, 4, 8]), (ModeKeys.TRAIN, [0, 2, 4, 6, 8]), (ModeKeys.EVAL, [0, 4, 8])],
)
def test_modes_that_a_save_configuration_lacks_take_the_default(
    trial: WrittenTrial,
    monkeypatch: pytest.MonkeyPatch,
    of_hook: bool,
    mode: ModeKeys | None,
    saved: list[int],
) -> None:
    partial = SaveConfig({ModeKeys.TRAIN: SaveConfigMode(save_interval=2)})
    if of_hook:
        monkeypatch.setattr("hook_layer.configuration.save_config.DEFAULT_SAVE_INTERVAL", 4)
        hook = make_hook(trial, save_config=partial)
    else:
        other = Collection("other", ["w"], save_config=partial)
        hook = make_hook(trial, other, save_config=SaveConfig(save_interval=4))
        hook.get_collection("mine").include_regex[:] = ["nothing"]
    if mode is not None:
        hook.set_mode(mode)
    for _ in range(9):
        hook.train(W)
    hook.close()
    assert list(trial.indexes()) == saved
    assert partial.mode_save_configs[ModeKeys.EVAL] is None
    stored = trial.collections().collections["mine" if of_hook else "other"].save_config
    assert stored is not None
    assert {name: config["save_interval"] for name, config in stored.items()} == {
        "TRAIN": 2,
        "EVAL": 4,
        "PREDICT": 4,
        "GLOBAL": 4,
    }


def test_a_collection_may_be_part_of_two_hooks(trial: WrittenTrial) -> None:
    shared = Collection("shared", ["w"])
    for interval in (2, 3):
        hook = make_hook(trial, shared, save_config=SaveConfig(save_interval=interval))
        hook.train(W)
        hook.close()
        stored = trial.collections().collections["shared"].save_config
        assert stored is not None
        assert stored["TRAIN"]["save_interval"] == interval
    assert shared.save_config is None
    assert shared.reduction_config is None


# The store --------------------------------------------------------------------------------------


def test_another_run_in_the_folder_is_warned_of_once(
    trial: WrittenTrial, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        assert "another run" not in caplog.text
        hook = make_hook(trial)
        hook.train(W)
        hook.close()
    assert sum("files of another run" in record.message for record in caplog.records) == 1


def test_a_file_of_another_worker_of_this_run_is_none_of_another(
    trial: WrittenTrial, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hook_layer.resuming.checkpoint.new_run_id", lambda: "RUN")
    shapes = (TensorShape("w", "w", (1,)),)
    index = IndexFile(ModeKeys.TRAIN, 0, None, shapes=shapes, run="RUN", workers=2, sequence=1)
    trial.store.put(index_key(0, "worker_1"), index.encode())
    hook = make_hook(trial)
    hook.train(W)
    hook.close()
    assert "another run" not in caplog.text


def test_a_store_that_lists_and_removes_nothing_is_good_enough(
    trial: WrittenTrial, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hook = make_hook(trial)

    def refuse(*_: object, **__: object) -> Any:
        raise StorageError("403")

    monkeypatch.setattr(hook.session.store, "delete", refuse)
    monkeypatch.setattr(hook.session.store, "list", refuse)
    for _ in range(6):
        hook.train(W)
    hook.close()
    monkeypatch.undo()
    report = hook.report()
    assert report.is_complete
    assert (report.writer.steps_written, report.writer.errors) == (6, 0)
    assert "not complete" not in caplog.text
    assert trial.store.exists(JOB_FILE)


def test_a_run_with_lost_steps_says_so(
    trial: WrittenTrial, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hook = make_hook(trial, spool_bytes=0)
    put = hook.session.store.put

    def refuse_some(key: str, data: Any) -> None:
        if key.startswith("events/000000000001"):
            raise StorageError("503")
        put(key, data)

    monkeypatch.setattr(hook.session.store, "put", refuse_some)
    for _ in range(3):
        hook.train(W)
    with caplog.at_level(logging.WARNING):
        hook.close()
    assert "is not complete: 1 steps could not be delivered" in caplog.text
    assert str(hook.report()).startswith("not complete")
    assert not hook.report().is_complete
    marker = trial.end_marker()
    assert marker is not None
    assert marker.sequences == {"worker_0": 3}
    assert [(i.sequence, i.skipped) for i in trial.indexes().values()] == [(1, None), (3, 1)]
