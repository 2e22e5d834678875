"""A step that holds as much as may wait for the writer is noticed, and can be ended."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)

from hook_layer.pytorch.steps import StepSize  # noqa: E402
from tests.hook_layer.pytorch.open_step import OpenStep  # noqa: E402

MAX_BYTES = 1 << 20
SMALL, LARGE = torch.ones(4), torch.ones(MAX_BYTES // 4)


def make_size(step: OpenStep) -> StepSize:
    return StepSize(step.recorder, step.collector, MAX_BYTES)


def test_a_step_is_full_once_its_tensors_fill_the_queue() -> None:
    step = OpenStep()
    size = make_size(step)
    assert not size.is_full()
    step.capture(small=SMALL)
    assert not size.is_full()
    step.capture(large=LARGE)
    assert size.is_full()


def test_where_no_step_is_open_none_is_full() -> None:
    step = OpenStep()
    step.capture(large=LARGE)
    step.recorder.end_step()
    assert not make_size(step).end_if_full()


def test_a_full_step_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    step = OpenStep()
    size = make_size(step)
    for _ in range(3):
        step.begin()
        size.begin_step()
        step.capture(small=SMALL, large=LARGE)
        assert size.is_full()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "step 1 ended before" in caplog.text
    assert f"its 2 tensors fill queue_bytes={MAX_BYTES}" in caplog.text


def test_bytes_are_summed_again_only_after_the_step_has_grown() -> None:
    step = OpenStep()
    size = make_size(step)
    step.capture(**{f"small{number}": SMALL for number in range(20)})
    assert not size.is_full()
    step.capture(large=LARGE)
    assert not size.is_full()
    step.capture(one=SMALL, two=SMALL)
    assert size.is_full()


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


def test_a_step_that_is_not_full_stays_open() -> None:
    step = OpenStep()
    size = make_size(step)
    step.capture(small=SMALL)
    assert not size.end_if_full()
    step.capture(more=SMALL)
    assert set(step.values()) == {"small", "more"}
