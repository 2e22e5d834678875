"""A step that holds as much as may wait for the writer is noticed, and can be ended."""

from __future__ import annotations

import torch

from hook_layer.pytorch.steps import StepSize
from tests.hook_layer.pytorch.open_step import OpenStep

MAX_BYTES = 1 << 20
SMALL, LARGE = torch.ones(4), torch.ones(MAX_BYTES // 4)


def make_size(step: OpenStep) -> StepSize:
    return StepSize(step.failures, step.recorder, step.collector, MAX_BYTES)


def test_a_step_with_fewer_tensors_than_the_one_before_is_noticed() -> None:
    step = OpenStep()
    size = make_size(step)
    step.capture(**{f"small{number}": SMALL for number in range(20)})
    assert not size.is_full()
    step.begin()
    size.begin_step()
    step.capture(large=LARGE)
    assert size.is_full()


def test_a_full_step_is_written_and_nothing_more_saved_until_the_next() -> None:
    step = OpenStep()
    size = make_size(step)
    step.capture(large=LARGE)
    assert size.end_if_full()
    assert [(record.step, set(record.tensors)) for record in step.written] == [(0, {"large"})]
    step.capture(late=SMALL)
    assert step.recorder.num_late == 0
    assert not size.end_if_full()
    step.begin()
    size.begin_step()
    step.capture(small=SMALL)
    assert set(step.values()) == {"small"}
