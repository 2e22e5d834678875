"""Steps to export, and TensorBoard's own reader."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hook_layer.capture.captured_step import ArraySnapshot, CapturedTensor, StepRecord
from hook_layer.configuration.collection_manager import SummaryPlan
from hook_layer.format.modes import ModeKeys

event_accumulator = pytest.importorskip(
    "tensorboard.backend.event_processing.event_accumulator", exc_type=ImportError
)

SCALAR = SummaryPlan(scalar=True)
WEIGHTS = SummaryPlan(histograms=("weights",))
EVERYTHING = {"scalars": 0, "histograms": 0, "compressedHistograms": 0}


def tensor(value: Any, summaries: SummaryPlan | None, wall_time: float | None = None) -> Any:
    array = np.asarray(value)
    snapshot = ArraySnapshot(array)
    return CapturedTensor(
        array.dtype.name, array.shape, summaries=summaries, shown=snapshot, wall_time=wall_time
    )


def step(
    number: int, tensors: Mapping[str, Any] | None = None, mode: ModeKeys = ModeKeys.TRAIN
) -> StepRecord:
    if tensors is None:
        tensors = {"loss": tensor(np.float32(1 / (number + 1)), SCALAR)}
    return StepRecord(number, mode, number, dict(tensors), wall_time=1000.0 + number)


def read(folder: Path) -> Any:
    accumulator = event_accumulator.EventAccumulator(str(folder), size_guidance=EVERYTHING)
    return accumulator.Reload()


def steps_of(accumulator: Any, tag: str = "loss") -> list[int]:
    return [event.step for event in accumulator.Scalars(tag)]


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())
