"""Hooks of runs that have ended are closed."""

from __future__ import annotations

from hook_layer.core.earlier_hooks import IDLE_STEPS, EarlierHooks


class Hook:
    """Counts its steps."""

    step = 0
    is_closed = False

    def close(self) -> None:
        self.is_closed = True


def test_a_hook_without_a_step_meanwhile_is_closed() -> None:
    idle, busy = Hook(), Hook()
    earlier = EarlierHooks([idle, busy, Hook()])
    for number in range(IDLE_STEPS + 1):
        assert not idle.is_closed
        may_be_open = earlier.count_step()
        assert may_be_open is (number < IDLE_STEPS)
        busy.step = number
    assert idle.is_closed
    assert not busy.is_closed


def test_without_earlier_hooks_nothing_is_closed() -> None:
    assert not EarlierHooks([]).count_step()
