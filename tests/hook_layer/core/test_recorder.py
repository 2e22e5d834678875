"""When a step is handed over, and what becomes of tensors that come late."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from hook_layer.capture.captured_step import StepRecord
from hook_layer.configuration.collection_manager import CollectionManager, TensorPlan
from hook_layer.configuration.collections import Collection
from hook_layer.configuration.save_config import SaveConfig
from hook_layer.core.clock import StepClock
from hook_layer.core.collector import Collector
from hook_layer.core.events import Events, StepEnds
from hook_layer.core.recorder import Recorder
from hook_layer.core.tensor_capture import TensorCapture, TensorSource
from hook_layer.format.modes import ModeKeys
from hook_layer.guard import FailureLog

RAW = TensorPlan(raw=True)


class Steps:
    """A recorder, and what it handed over."""

    def __init__(self, interval: int = 1) -> None:
        manager = CollectionManager(
            {"mine": Collection("mine", ["w"])}, {"mine"}, SaveConfig(save_interval=interval)
        )
        self.failures = FailureLog()
        self.clock = StepClock()
        self.events = Events(self.failures)
        self.collector = Collector(manager, self.events)
        capture = TensorCapture(TensorSource(self.failures), self.failures)
        self.handed: list[StepRecord] = []
        self.recorder = Recorder(
            self.clock, self.collector, capture, self.handed.append, self.events
        )

    def begin(self, *names: str) -> None:
        self.recorder.end_step()
        self.clock.count()
        self.recorder.begin_step()
        self.capture(*names)

    def capture(self, *names: str, is_late: bool = True) -> None:
        planned = self.collector.planned(dict.fromkeys(names, np.ones(2)))
        self.recorder.capture(planned, is_late=is_late)

    def own(self, name: str, value: float) -> None:
        self.recorder.capture_own({name: (value, RAW)})

    @property
    def found(self) -> Mapping[int, set[str]]:
        return {record.step: set(record.tensors) for record in self.handed}


def value_of(record: StepRecord, name: str) -> Any:
    raw = record.tensors[name].raw
    assert raw is not None
    return raw.array().item()


def test_the_first_step_stays_open_and_later_ones_are_handed_over_at_once() -> None:
    steps = Steps()
    steps.begin("w")
    steps.recorder.step_is_captured()
    assert steps.found == {}
    steps.begin("w")
    assert steps.found == {0: {"w"}}
    steps.recorder.step_is_captured()
    assert steps.found == {0: {"w"}, 1: {"w"}}
    assert steps.recorder.is_between_steps


def test_the_first_step_of_each_mode_stays_open() -> None:
    steps = Steps()
    for mode in (ModeKeys.TRAIN, ModeKeys.EVAL):
        steps.recorder.end_step()
        steps.clock.set_mode(mode)
        steps.begin("w")
        steps.recorder.step_is_captured()
        assert steps.recorder.record is not None


def test_steps_stay_open_once_something_came_late() -> None:
    steps = Steps()
    steps.begin("w1")
    steps.recorder.step_is_captured()
    steps.capture("w2")
    steps.begin("w1")
    steps.recorder.step_is_captured()
    steps.capture("w2")
    steps.recorder.end_step()
    assert steps.found == {0: {"w1", "w2"}, 1: {"w1", "w2"}}


def test_what_is_known_to_come_last_keeps_no_step_open() -> None:
    steps = Steps()
    steps.begin("w1")
    steps.recorder.step_is_captured()
    steps.capture("w2", is_late=False)
    steps.begin("w1")
    steps.recorder.step_is_captured()
    assert steps.found == {0: {"w1", "w2"}, 1: {"w1"}}


def test_a_step_that_continues_is_not_handed_over() -> None:
    steps = Steps()
    steps.begin("w")
    steps.recorder.step_is_captured()
    steps.recorder.step_continues()
    steps.capture("w2")
    assert not steps.recorder.saw_late_tensors


def test_tensors_after_their_step_are_counted_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    steps = Steps()
    steps.begin("w")
    planned = steps.collector.planned(dict.fromkeys(("w1", "w2"), np.ones(2)))
    steps.recorder.end_step()
    for _ in range(2):
        steps.recorder.capture(planned)
    assert steps.recorder.num_late == 4
    assert caplog.text.count("came after their step was written") == 1


def test_what_a_script_saves_waits_for_the_next_saved_step() -> None:
    steps = Steps(interval=2)
    steps.own("before", 1)
    for step in range(3):
        steps.begin("w")
        steps.own("lr", step)
        if step == 1:
            steps.recorder.capture_for_next({"accuracy": (0.5, RAW)})
        steps.recorder.step_is_captured()
    assert steps.found == {0: {"w", "before", "lr"}, 2: {"w", "lr", "accuracy"}}
    assert value_of(steps.handed[1], "lr") == 2


def test_what_is_left_becomes_a_step_of_its_own() -> None:
    steps = Steps(interval=2)
    steps.begin("w")
    steps.begin()
    steps.own("b", 1)
    steps.own("a", 1)
    assert steps.recorder.pending_names == ["a", "b"]
    record = steps.recorder.take_pending()
    assert record is not None
    assert (record.step, record.mode_step, set(record.tensors)) == (2, 2, {"a", "b"})
    assert steps.recorder.take_pending() is None


def test_an_own_time_is_kept() -> None:
    steps = Steps()
    steps.begin()
    steps.recorder.capture_own({"a": (1, RAW)}, 5.0)
    steps.recorder.end_step()
    assert steps.handed[0].tensors["a"].wall_time == 5.0


def test_a_step_without_tensors_is_not_handed_over() -> None:
    steps = Steps()
    steps.begin()
    steps.begin()
    assert steps.handed == []


def test_a_step_can_be_emptied_and_discarded() -> None:
    steps = Steps()
    steps.begin("w")
    steps.recorder.release()
    steps.capture("w2")
    steps.begin("w")
    steps.recorder.discard()
    steps.recorder.end_step()
    assert steps.found == {0: {"w2"}}


def test_a_method_is_called_before_each_end() -> None:
    steps = Steps()

    class Framework:
        def capture_rest(self, _: StepEnds) -> None:
            steps.capture("w_last")

    framework = Framework()
    steps.events.subscribe(StepEnds, framework.capture_rest, "steps")
    steps.begin("w")
    steps.begin("w")
    steps.recorder.step_is_captured()
    assert steps.found == {0: {"w", "w_last"}, 1: {"w", "w_last"}}
    del framework
    steps.begin("w")
    steps.recorder.end_step()
    assert steps.found[2] == {"w"}


def test_a_step_that_is_not_saved_is_known_as_such() -> None:
    steps = Steps(interval=2)
    assert not steps.recorder.is_step_unsaved
    steps.begin()
    assert not steps.recorder.is_step_unsaved
    steps.begin()
    assert steps.recorder.is_step_unsaved
