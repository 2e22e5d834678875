"""What the parts of a hook share."""

from __future__ import annotations

import weakref

import pytest

from hook_layer.core.events import HookCloses
from hook_layer.core.state import HookState, Part


class Model:
    """Has something to release."""

    def __init__(self, state: HookState, *, fails: bool = False) -> None:
        self.num_released = 0
        self.fails = fails
        state.events.subscribe(HookCloses, self.release, "close")

    def release(self, _: HookCloses) -> None:
        self.num_released += 1
        if self.fails:
            raise ValueError("it holds on")


def test_everything_is_released_when_the_hook_closes() -> None:
    state = HookState()
    models = [Model(state, fails=True), Model(state)]
    state.close()
    assert [model.num_released for model in models] == [1, 1]
    assert state.failures.errors == {"close": 1}
    assert not Part(state).is_active


def test_what_is_to_be_released_is_not_kept_alive() -> None:
    state = HookState()
    dead = weakref.ref(Model(state))
    assert dead() is None
    state.close()


def test_a_forked_child_has_no_active_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    state = HookState()
    assert Part(state).is_active
    monkeypatch.setattr("hook_layer.process.this_process.this_process.pid", -1)
    assert state.is_forked
    assert not Part(state).is_active


def test_hooks_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USE_SMDEBUG", "0")
    assert not Part(HookState()).is_active
