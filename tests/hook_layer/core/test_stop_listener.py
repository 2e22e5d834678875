"""Whether a run stops where its next step would begin."""

from __future__ import annotations

import pytest

from hook_layer.configuration.hook_options import OnStop
from hook_layer.core.stop_listener import StopListener
from hook_layer.core.workers import Workers
from hook_layer.format.job_file import StopFile
from tests.hook_layer.fixed_workers import FixedWorkers

REQUEST = StopFile("the loss grows", "2026-01-01T00:00:00Z")


class Agreed:
    """Ranks that stop before a step."""

    def __init__(self, last_step: int) -> None:
        self.num_steps = 0
        self.last_step = last_step
        self.is_closed = False

    def begin_step(self) -> StopFile | None:
        self.num_steps += 1
        return self.stop_now()

    def stop_now(self) -> StopFile | None:
        return REQUEST if self.num_steps > self.last_step else None

    def close(self) -> None:
        self.is_closed = True


def make_listener(
    on_stop: OnStop = "raise",
    request: StopFile | None = REQUEST,
    workers: Workers | None = None,
) -> StopListener:
    return StopListener(on_stop, lambda: request, workers or Workers())


def test_a_run_without_a_request_goes_on() -> None:
    listener = make_listener(request=None)
    assert listener.request is listener.ending_request is listener.begin_step() is None


def test_a_request_ends_the_run() -> None:
    listener = make_listener()
    assert listener.request is listener.ending_request is listener.begin_step() is REQUEST
    assert listener.refuse(REQUEST) is REQUEST


def test_a_flag_only_says_so() -> None:
    listener = make_listener("flag")
    assert listener.request is REQUEST
    assert listener.ending_request is listener.begin_step() is listener.refuse(REQUEST) is None


def test_a_framework_may_end_its_loop_itself() -> None:
    listener = make_listener()
    listener.raises = False
    assert listener.begin_step() is None
    assert listener.ending_request is REQUEST


def test_one_of_several_ranks_does_not_leave_alone(caplog: pytest.LogCaptureFixture) -> None:
    listener = make_listener(workers=FixedWorkers(0, 2))
    assert listener.is_alone_among_ranks
    assert listener.begin_step() is listener.begin_step() is None
    assert listener.request is REQUEST
    assert caplog.text.count("only sets hook.should_stop") == 1


def test_ranks_that_agree_stop_together() -> None:
    listener = make_listener(workers=FixedWorkers(0, 2))
    listener.agreement = agreement = Agreed(2)
    assert not listener.is_alone_among_ranks
    assert [listener.begin_step() for _ in range(3)] == [None, None, REQUEST]
    listener.is_training_step = False
    assert listener.begin_step() is None
    assert agreement.num_steps == 3
    listener.close()
    assert agreement.is_closed


def test_ranks_agree_also_where_the_framework_ends_its_loop() -> None:
    listener = make_listener(workers=FixedWorkers(0, 2))
    listener.agreement, listener.raises = Agreed(1), False
    assert [listener.begin_step() for _ in range(2)] == [None, None]
    assert listener.ending_request is REQUEST


def test_a_framework_ends_its_loop_and_the_reason_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    listener = make_listener()
    assert listener.ends_loop("step 2")
    assert listener.ends_loop("step 3")
    assert caplog.messages == ["training ends after step 2, as requested: the loss grows"]
    assert not make_listener("flag").ends_loop("step 2")
    assert not make_listener(workers=FixedWorkers(0, 2)).ends_loop("step 2")
