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
