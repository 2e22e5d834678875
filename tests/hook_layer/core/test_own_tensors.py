"""Scalars and tensors that a script saves itself."""

from __future__ import annotations

import pytest

from hook_layer.testing.written_trial import WrittenTrial
from tests.hook_layer.fixed_workers import FixedWorkers
from tests.hook_layer.tiny_hook import W, make_hook


def test_a_name_that_is_no_string_is_a_type_error(trial: WrittenTrial) -> None:
    own = make_hook(trial).own_tensors
    with pytest.raises(TypeError, match="string"):
        own.save_scalar(3, 1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="string"):
        own.save_tensor(None, 1, "default")  # type: ignore[arg-type]


def test_a_rank_that_does_not_write_keeps_nothing(trial: WrittenTrial) -> None:
    hook = make_hook(trial, workers=FixedWorkers(1, 2))
    hook.own_tensors.save_scalar("before", 1)
    assert hook.recorder.pending_names == ["scalar/before"]  # its rank is not known yet
    hook.train(W)
    hook.own_tensors.save_scalar("lr", 1)
    assert hook.recorder.pending_names == ["scalar/before"]
    hook.close()
    assert not list(trial.store.list())
