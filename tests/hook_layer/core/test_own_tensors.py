"""Scalars and tensors that a script saves itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hook_layer.configuration.save_config import SaveConfig
from hook_layer.testing.written_trial import WrittenTrial
from tests.hook_layer.fixed_workers import FixedWorkers
from tests.hook_layer.tiny_hook import W, make_hook


@pytest.mark.parametrize("value", [[[1, 2], [3]], "one", None, [1, 2], {}])
def test_a_scalar_that_is_no_number_is_a_type_error(trial: WrittenTrial, value: Any) -> None:
    own = make_hook(trial).own_tensors
    with pytest.raises(TypeError, match="one number"):
        own.save_scalar("x", value)


def test_a_name_that_is_no_string_is_a_type_error(trial: WrittenTrial) -> None:
    own = make_hook(trial).own_tensors
    with pytest.raises(TypeError, match="string"):
        own.save_scalar(3, 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="string"):
        own.save_tensor(None, 1, "default")  # type: ignore[arg-type]


def test_a_tensor_is_saved_in_a_saved_step_only(trial: WrittenTrial) -> None:
    hook = make_hook(trial, save_config=SaveConfig(save_interval=2))
    for step in range(4):
        hook.train(W)
        hook.own_tensors.save_tensor("mask", np.full(2, step), "default")
    hook.close()
    assert {step: trial.values(step)["mask"].tolist() for step in trial.indexes()} == {
        0: [0, 0],
        2: [2, 2],
    }
    assert trial.collections().collections["default"].tensor_names == ("mask",)


@pytest.mark.parametrize("collections", ["losses", ["default", "losses"]])
def test_a_loss_of_the_scripts_own_is_known(trial: WrittenTrial, collections: Any) -> None:
    own = make_hook(trial).own_tensors
    own.save_tensor("mask", 1.0, "default")
    assert not own.has_losses
    own.save_tensor("loss", 1.0, collections)
    assert own.has_losses


def test_a_rank_that_does_not_write_keeps_nothing(trial: WrittenTrial) -> None:
    hook = make_hook(trial, workers=FixedWorkers(1, 2))
    hook.own_tensors.save_scalar("before", 1)
    assert hook.recorder.pending_names == ["scalar/before"]  # its rank is not known yet
    hook.train(W)
    hook.own_tensors.save_scalar("lr", 1)
    assert hook.recorder.pending_names == ["scalar/before"]
    hook.close()
    assert not list(trial.store.list())


def test_a_closed_hook_logs_once_that_it_stores_nothing_more(
    trial: WrittenTrial, caplog: pytest.LogCaptureFixture
) -> None:
    hook = make_hook(trial)
    hook.train(W)
    hook.close()
    hook.save_scalar("score", 0.5)
    hook.save_tensor("mask", np.ones(2))
    assert caplog.text.count("the hook is closed and stores nothing more") == 1
