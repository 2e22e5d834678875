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
from hook_layer.core.events import Events
from hook_layer.core.recorder import Recorder
from hook_layer.core.tensor_capture import TensorCapture, TensorSource
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
