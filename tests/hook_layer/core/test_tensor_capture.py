"""What is captured of tensors, and what a bad one costs."""

from __future__ import annotations

from typing import Any

import numpy as np

from hook_layer.capture.byte_budget import ByteBudget
from hook_layer.capture.captured_step import CapturedTensor, NumpyBackend, StatisticsBatch
from hook_layer.configuration.collection_manager import SummaryPlan, TensorPlan
from hook_layer.core.tensor_capture import (
    TensorCapture,
    TensorSource,
)
from hook_layer.guard import FailureLog

RAW, NO_VALUE = TensorPlan(raw=True), TensorPlan(raw=False)


def make_capture(
    source: type[TensorSource] = TensorSource, **options: Any
) -> tuple[TensorCapture, FailureLog]:
    failures = FailureLog()
    return TensorCapture(source(failures), failures, **options), failures


def array_of(tensor: CapturedTensor) -> Any:
    assert tensor.raw is not None
    return tensor.raw.array().tolist()


def test_statistics_that_fail_together_are_computed_one_by_one() -> None:
    class Backend(NumpyBackend):
        def statistics(self, values: Any, copies: Any) -> StatisticsBatch:
            if 7 in values:
                raise ValueError(7)
            return super().statistics(values, copies)

    class Source(TensorSource):
        def backend_of(self, value: Any) -> Backend:
            del value
            return Backend()

    capture, failures = make_capture(Source)
    found = capture.capture({"a": (1, RAW), "b": (7, RAW), "c": (2, RAW)})
    assert {name: tensor.statistics is not None for name, tensor in found.items()} == {
        "a": True,
        "b": False,
        "c": True,
    }
    assert failures.errors == {"tensors": 1}


def test_a_reduction_that_cannot_be_is_counted() -> None:
    capture, failures = make_capture()
    plan = TensorPlan(raw=True, reductions=(("max", False),))
    assert capture.capture({"v": (np.ones(0), plan)})["v"].reductions == []
    assert failures.errors == {"reductions": 1}


def test_a_value_beyond_the_budget_is_cut_and_shown_whole() -> None:
    budget = ByteBudget(max_step_bytes=1600)
    budget.begin_step("kind")
    capture, _ = make_capture(budget=budget)
    plan = TensorPlan(raw=True, summaries=SummaryPlan(histograms=("mine",)))
    found = capture.capture({"v": (np.ones((1000, 2), "f4"), plan)})["v"]
    assert found.rows is not None
    assert len(array_of(found)) == found.rows < 1000
    assert found.shown is not None
    assert found.shown.array().shape == (1000, 2)
