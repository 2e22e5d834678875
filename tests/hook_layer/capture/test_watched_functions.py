"""Functions of frameworks that report their calls."""

from __future__ import annotations

import sys
import traceback
from typing import Any

import pytest

from hook_layer.capture import watched_functions
from hook_layer.capture.watched_functions import WatchedFunction


class Listener:
    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def hear(self, args: tuple[Any, ...], result: Any) -> None:
        self.calls.append((*args, result))


def test_somebody_else_may_wrap_the_same_function() -> None:
    class Owner:
        @staticmethod
        def function(x: int) -> int:
            return x + 1

    watched, listener = WatchedFunction(Owner, "function"), Listener()
    listening = watched.listen(listener.hear)
    ours = Owner.function
    Owner.function = lambda x: 10 * ours(x)  # type: ignore[method-assign]
    assert Owner.function(1) == 20
    listening.remove()
    assert Owner.function(2) == 30
    again = watched.listen(listener.hear)
    assert Owner.function(3) == 40
    again.remove()
    assert listener.calls == [(1, 2), (3, 4)]


def test_what_a_function_calls_of_itself_is_not_reported() -> None:
    class Owner:
        @staticmethod
        def countdown(number: int) -> list[int]:
            return [number, *Owner.countdown(number - 1)] if number else []

    original = Owner.countdown
    before, after = Listener(), Listener()
    watched = WatchedFunction(Owner, "countdown")
    handles = [watched.listen(before.hear, is_before_call=True), watched.listen(after.hear)]
    assert Owner.countdown(number=2) == [2, 1]
    assert before.calls == [(2, None)]
    assert after.calls == [(2, [2, 1])]
    for handle in handles:
        handle.remove()
    assert Owner.countdown is original


@pytest.mark.skipif(sys.version_info < (3, 11), reason="up to Python 3.10 frames cannot be hidden")
def test_an_error_is_not_reported_and_shows_no_frame_of_ours() -> None:
    class Owner:
        @staticmethod
        def fail() -> None:
            raise KeyError("wrong")

    watched, after = WatchedFunction(Owner, "fail"), Listener()
    handle = watched.listen(after.hear)
    with pytest.raises(KeyError) as caught:
        Owner.fail()
    files = [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert watched_functions.__file__ not in files
    assert after.calls == []
    handle.remove()


def test_a_listener_that_is_gone_is_forgotten() -> None:
    class Owner:
        @staticmethod
        def function() -> None:
            pass

    original = Owner.function
    watched, listener = WatchedFunction(Owner, "function"), Listener()
    watched.listen(listener.hear)
    assert Owner.function is not original
    del listener
    Owner.function()
    assert Owner.function is original
