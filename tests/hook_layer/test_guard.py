from __future__ import annotations

import pytest

from hook_layer.core.state import HookState
from hook_layer.errors import HookConfigurationError, TrainingStoppedError
from hook_layer.guard import FailureLog, Stopwatch, guarded


class Part:
    def __init__(self) -> None:
        self.failures = FailureLog()
        self.stopwatch = Stopwatch()
        self.state = HookState()
        self.calls = 0

    @guarded("work")
    def work(self, error: Exception | None = None) -> str:
        self.calls += 1
        if error is not None:
            raise error
        return "done"

    @guarded("work")
    def more(self) -> None:
        """Work that never fails."""

    @guarded("work")
    def outer(self) -> None:
        self.work(KeyError("inner"))


def test_a_part_is_switched_off_after_three_failures_in_a_row(
    caplog: pytest.LogCaptureFixture,
) -> None:
    part = Part()
    for _ in range(2):
        assert part.work(KeyError("x")) is None
    assert "work" not in part.failures.off
    assert part.work() == "done"
    for _ in range(6):
        part.work(KeyError("x"))
        part.more()
    assert "work" in part.failures.off
    assert part.failures.errors == {"work": 5}
    assert part.calls == 6
    assert part.work() is None
    assert [record.exc_info is None for record in caplog.records] == [False, True]


def test_what_fails_inside_is_no_success_outside() -> None:
    part = Part()
    for _ in range(5):
        part.outer()
    assert part.failures.errors == {"work": 3}


@pytest.mark.parametrize("error", [HookConfigurationError("x"), TrainingStoppedError("x")])
def test_what_is_meant_for_the_training_gets_through(error: Exception) -> None:
    part = Part()
    with pytest.raises(type(error)):
        part.work(error)
    assert not part.failures.errors


def test_a_late_mistake_is_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    part = Part()
    for _ in range(5):
        part.failures.mistaken(HookConfigurationError("no such collection"))
    assert part.failures.errors == {"configuration": 1}
    assert [record.message for record in caplog.records] == [
        "this call has no effect; training continues: no such collection"
    ]
    assert part.work() == "done"


def test_a_warning_is_logged_once_whatever_its_arguments(caplog: pytest.LogCaptureFixture) -> None:
    failures = FailureLog()
    for step in range(3):
        failures.warn_once("step %d is full", step)
    failures.warn_once("another one")
    assert [record.getMessage() for record in caplog.records] == ["step 0 is full", "another one"]


def test_bad_tensors_are_counted_and_two_are_logged_for_each_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failures = FailureLog()
    for _ in range(3):
        for number in range(150):
            failures.tensor_failed(f"t{number}", ValueError("bad"))
    failures.tensor_failed("u", ValueError("worse"))
    assert failures.errors == {"tensors": 451}
    assert [record.getMessage() for record in caplog.records] == [
        "'t0' cannot be saved and is skipped: bad",
        "'t1' and others cannot be saved and are skipped: bad",
        "'u' cannot be saved and is skipped: worse",
    ]
    assert "tensors" not in failures.off
    assert failures.not_captured == {"t0": "bad", "t1": "bad", "u": "worse"}


def test_a_tensor_that_is_skipped_is_logged_but_is_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failures = FailureLog()
    failures.tensor_skipped("t", "it has no values")
    assert failures.not_captured == {"t": "it has no values"}
    assert not failures.errors
    assert len(caplog.records) == 1


def test_reasons_of_bad_tensors_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    failures = FailureLog()
    for number in range(150):
        failures.tensor_failed(f"t{number}", ValueError(f"bad at {number}"))
    assert failures.errors == {"tensors": 150}
    assert len(caplog.records) == 100
