"""Values that a script saves after its run has ended."""

from __future__ import annotations

import pytest

from hook_layer.core.late_values import LateValues
from hook_layer.testing.written_trial import WrittenTrial
from tests.hook_layer.fixed_workers import FixedWorkers
from tests.hook_layer.tiny_hook import TinyHook, W, make_hook


def ended(trial: WrittenTrial) -> TinyHook:
    """Return a closed hook that accepts values for one more step."""
    hook = make_hook(trial)
    hook.train(W)
    hook.close()
    hook.own_tensors.late = LateValues(hook.recorder, hook.session)
    return hook


def close_late(hook: TinyHook) -> None:
    assert hook.own_tensors.late is not None
    hook.own_tensors.late.close()


def test_values_after_the_end_become_one_more_step(trial: WrittenTrial) -> None:
    hook = ended(trial)
    hook.save_scalar("score", 0.25)
    hook.save_scalar("score", 0.5)
    close_late(hook)
    close_late(hook)
    assert sorted(trial.indexes()) == [0, 1]
    assert trial.values(1)["scalar/score"].tolist() == [0.5]
    assert trial.end_marker() is not None


def test_without_values_nothing_is_written(trial: WrittenTrial) -> None:
    hook = ended(trial)
    written = sorted(trial.store.list())
    close_late(hook)
    assert sorted(trial.store.list()) == written


def test_a_folder_of_another_run_stays_as_it_is(
    trial: WrittenTrial, caplog: pytest.LogCaptureFixture
) -> None:
    hook, other = ended(trial), make_hook(trial)
    hook.save_scalar("score", 0.5)
    for _ in range(2):
        other.train(W)
    other.close()
    close_late(hook)
    assert "scalar/score" not in trial.names(1)
    assert "scalar/score are not stored, because another run began" in caplog.text


def test_a_store_that_fails_does_not_reach_the_script(
    trial: WrittenTrial, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hook = ended(trial)
    hook.save_scalar("score", 0.5)

    def fail(*_: object) -> bytes:
        raise OSError("no route")

    monkeypatch.setattr(hook.session.store, "get", fail)
    close_late(hook)
    assert "values of scalar/score are not stored" in caplog.text


def test_a_rank_that_does_not_write_saves_nothing_late(trial: WrittenTrial) -> None:
    hook = make_hook(trial, workers=FixedWorkers(1, 2))
    hook.train(W)
    hook.close()
    hook.own_tensors.late = LateValues(hook.recorder, hook.session)
    hook.save_scalar("score", 0.5)
    assert not hook.recorder.pending_names
