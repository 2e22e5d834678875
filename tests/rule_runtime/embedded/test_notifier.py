"""Messages of a watched run, posted to a real server on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rule_runtime.embedded.notifier import Notifier
from tests.rule_runtime.embedded.receiver import SECRET, Receiver, receiving


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as server:
        yield server


class Notices:
    def __init__(self) -> None:
        self.problems: list[str] = []
        self.pauses: list[float] = []

    def notifier(self, url: str, **more: Any) -> Notifier:
        return Notifier(url, self.problems.append, pause=self.pauses.append, **more)


def test_messages_arrive_in_their_order(receiver: Receiver) -> None:
    notices = Notices()
    notifier = notices.notifier(receiver.url)
    for number in range(3):
        notifier.send({"text": str(number)})
    notifier.close()
    assert receiver.messages == [{"text": "0"}, {"text": "1"}, {"text": "2"}]
    assert set(receiver.paths) == {f"/hooks/{SECRET}"}
    assert (notices.problems, notices.pauses) == ([], [])


def test_what_may_pass_is_tried_again(receiver: Receiver) -> None:
    notices = Notices()
    receiver.statuses = [503, 429]
    notifier = notices.notifier(receiver.url)
    notifier.send({"text": "x"})
    notifier.close()
    assert len(receiver.messages) == 3
    assert notices.problems == []
    assert notices.pauses == [1.0, 4.0]


@pytest.mark.parametrize(
    ("statuses", "num_tries"), [([404] * 9, 1), ([500] * 9, 3), ([302] * 9, 1)]
)
def test_a_failure_is_reported_once_and_without_the_url(
    receiver: Receiver, statuses: list[int], num_tries: int
) -> None:
    notices = Notices()
    receiver.statuses = list(statuses)
    notifier = notices.notifier(receiver.url)
    notifier.send({"text": "x"})
    notifier.send({"text": "y"})
    notifier.close()
    assert [each["text"] for each in receiver.messages] == ["x"] * num_tries + ["y"] * num_tries
    (problem,) = notices.problems
    assert problem == (
        f"the --notify URL did not accept a message (HTTP status {statuses[0]}); the run "
        "continues, and this is reported once"
    )


def test_an_address_where_nobody_answers(receiver: Receiver) -> None:
    notices = Notices()
    with Receiver() as gone:
        url = gone.url
    notifier = notices.notifier(url)
    notifier.send({"text": "x"})
    notifier.close()
    (problem,) = notices.problems
    assert "ConnectionRefusedError" in problem
    assert SECRET not in problem
    assert "127.0.0.1" not in problem


def test_who_sends_never_waits(receiver: Receiver) -> None:
    notices = Notices()
    receiver.may_answer.clear()
    notifier = notices.notifier(receiver.url, max_waiting=2)
    for number in range(9):
        notifier.send({"text": str(number)})
    assert ["more messages wait" in problem for problem in notices.problems] == [True]
    notifier.close(timeout_s=0.0)
    assert len(notices.problems) == 1
    assert len(receiver.messages) <= 1


def test_what_is_left_at_the_end_is_reported(receiver: Receiver) -> None:
    notices = Notices()
    receiver.may_answer.clear()
    notifier = notices.notifier(receiver.url)
    notifier.send({"text": "x"})
    notifier.close(timeout_s=0.0)
    assert ["not sent in time" in problem for problem in notices.problems] == [True]


@pytest.mark.parametrize(
    "url", ["", "ftp://host/SECRET", "file:///etc/SECRET", "http:///SECRET", "SECRET", "http://[SECRET"]
)  # fmt: skip
def test_what_is_no_address_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ValueError, match="https://") as refused:
        Notifier(url, lambda _: None)
    assert "SECRET" not in str(refused.value)
    assert refused.value.__cause__ is None
