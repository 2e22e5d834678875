"""Steps are counted in total and per mode."""

from __future__ import annotations

from hook_layer.core.clock import INIT_STEP, StepClock
from hook_layer.format.modes import ModeKeys

TRAIN, EVAL, GLOBAL = ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.GLOBAL


def counted(clock: StepClock, mode: ModeKeys, steps: int) -> StepClock:
    clock.set_mode(mode)
    for _ in range(steps):
        clock.count()
    return clock


def test_before_the_first_step_there_is_none() -> None:
    clock = StepClock()
    assert (clock.step, clock.mode_step, clock.num_steps) == (INIT_STEP, INIT_STEP, 0)


def test_each_mode_has_steps_of_its_own() -> None:
    clock = counted(counted(StepClock(), TRAIN, 3), EVAL, 2)
    assert (clock.step, clock.mode_step, clock.num_steps) == (4, 1, 5)
    assert clock.mode_steps == {GLOBAL: 4, TRAIN: 2, EVAL: 1}
    assert counted(clock, TRAIN, 1).mode_step == 3


def test_steps_without_a_mode_are_global() -> None:
    clock = counted(StepClock(), GLOBAL, 2)
    assert clock.mode_steps == {GLOBAL: 1}


def test_an_interrupted_run_continues_its_numbers() -> None:
    clock = StepClock()
    clock.set_mode(EVAL)
    clock.resume_after(7, {TRAIN: 5, EVAL: 1})
    counted(clock, TRAIN, 1)
    assert clock.mode_steps == {GLOBAL: 8, TRAIN: 6, EVAL: 1}
    assert (clock.step, clock.num_steps) == (8, 1)


def test_the_last_step_can_be_forgotten() -> None:
    for mode in (TRAIN, GLOBAL):
        clock = counted(StepClock(), mode, 2)
        clock.count_back()
        assert (clock.step, clock.mode_step, clock.mode_steps[GLOBAL]) == (0, 0, 0)
