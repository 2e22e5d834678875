"""A step of the real parts of a hook, without models."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from hook_layer.capture.captured_step import StepRecord
from hook_layer.configuration.collection_manager import CollectionManager
from hook_layer.configuration.collections import Collection
from hook_layer.configuration.save_config import SaveConfig
from hook_layer.core.clock import StepClock
from hook_layer.core.collector import Collector
from hook_layer.core.events import Events
from hook_layer.core.recorder import Recorder
from hook_layer.core.tensor_capture import TensorCapture
from hook_layer.guard import FailureLog
from hook_layer.pytorch.modules import RegisteredModules
from hook_layer.pytorch.tensor_source import TorchSource

__all__ = ["OpenStep"]


class OpenStep:
    """A recorder with an open step, and what decides what is saved in it.

    Args:
        pattern: Regular expression of the tensors that are saved.
        interval: Every how many steps.

    Attributes:
        clock: Numbers of the steps.
        collector: What is saved in them.
        recorder: Has the open step.
        failures: Has the tensors that are not captured.
        written: The steps that were handed over.
    """

    def __init__(self, pattern: str = ".", interval: int = 1) -> None:
        manager = CollectionManager(
            {"mine": Collection("mine", [pattern])}, {"mine"}, SaveConfig(save_interval=interval)
        )
        failures = self.failures = FailureLog()
        registered = RegisteredModules()
        source = TorchSource(failures, registered, queue_bytes=1 << 20, is_only_writer=False)
        self.clock = StepClock()
        events = Events(failures)
        self.collector = Collector(manager, events)
        self.written: list[StepRecord] = []
        self.recorder = Recorder(
            self.clock,
            self.collector,
            TensorCapture(source, failures),
            self.written.append,
            events,
        )
        self.begin()

    def begin(self) -> None:
        """End the open step, and begin the next one."""
        self.recorder.end_step()
        self.clock.count()
        self.recorder.begin_step()

    def capture(self, **tensors: Tensor) -> None:
        """Capture tensors that are saved in this step."""
        self.recorder.capture(self.collector.planned(tensors))

    def values(self) -> dict[str, Any]:
        """Return the values in the open step, as nested lists."""
        record = self.recorder.record
        assert record is not None
        raw = {name: tensor.raw for name, tensor in record.tensors.items()}
        return {name: np.asarray(s.array()).tolist() for name, s in raw.items() if s is not None}
