"""Scalars and tensors that a script saves itself, before and after the end of its run."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from hook_layer.core.late_values import LateValues
from hook_layer.testing.written_trial import WrittenTrial
from tests.hook_layer.fixed_workers import FixedWorkers
from tests.hook_layer.tiny_hook import TinyHook, W, make_hook


def test_a_name_that_is_no_string_is_a_type_error(trial: WrittenTrial) -> None:
    own = make_hook(trial).own_tensors
    with pytest.raises(TypeError, match="string"):
        own.save_scalar(3, 1)
    with pytest.raises(TypeError, match="string"):
        own.save_tensor(None, 1, "default")


def test_a_rank_that_does_not_write_keeps_nothing(trial: WrittenTrial) -> None:
    hook = make_hook(trial, workers=FixedWorkers(1, 2))
    hook.own_tensors.save_scalar("before", 1)
    assert hook.recorder.pending_names == ["scalar/before"]  # its rank is not known yet
    hook.train(W)
    hook.own_tensors.save_scalar("lr", 1)
    assert hook.recorder.pending_names == ["scalar/before"]
    hook.close()
    assert not list(trial.store.list())


def test_saving_that_keeps_failing_is_switched_off(
    trial: WrittenTrial, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = make_hook(trial)
    attempts: list[str] = []

    def fail(name: str) -> None:
        attempts.append(name)
        if name != "scalar/fine":
            raise MemoryError

    monkeypatch.setattr(hook.own_tensors, "_manager", SimpleNamespace(note=fail))
    for name in ("a", "b", "fine", "c", "d", "e", "f"):
        hook.save_scalar(name, 1)
    assert attempts == [f"scalar/{name}" for name in ("a", "b", "fine", "c", "d", "e")]
    assert hook.report().errors == {"own tensors": 5}
    assert hook.report().training_s > 0
    hook.close()


# After the end ------------------------------------------------------------------------------------


def ended(trial: WrittenTrial, rank: int = 0) -> TinyHook:
    """Return a closed hook that accepts values for one more step."""
    hook = make_hook(trial, workers=FixedWorkers(rank, 1 + rank))
    hook.train(W)
    hook.close()
    hook.own_tensors.late = LateValues(hook.recorder, hook.session)
    return hook


def test_a_store_that_fails_does_not_reach_the_script(
    trial: WrittenTrial, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hook = ended(trial)
    hook.save_scalar("score", 0.5)

    def fail(*_: object) -> bytes:
        raise OSError("no route")

    monkeypatch.setattr(hook.session.store, "get", fail)
    assert hook.own_tensors.late is not None
    hook.own_tensors.late.close()
    assert "values of scalar/score are not stored" in caplog.text


def test_a_rank_that_does_not_write_saves_nothing_late(trial: WrittenTrial) -> None:
    hook = ended(trial, rank=1)
    hook.save_scalar("score", 0.5)
    assert not hook.recorder.pending_names
