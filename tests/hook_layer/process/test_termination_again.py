"""SIGTERM where a handler was replaced, as by a trainer that puts back what it found."""

from __future__ import annotations

import gc
import os
import signal
import weakref
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from hook_layer.process.termination import TerminationHandler

Handler = Callable[[int, FrameType | None], object]


class Told:
    def __init__(self) -> None:
        self.noted = 0

    def note_termination(self, _: signal.Signals) -> None:
        self.noted += 1

    def store_before_termination(self) -> None:
        raise AssertionError("another handler decides")


class Deciding:
    """A handler of somebody else; calls another one in turn."""

    def __init__(self, then: Handler | None = None) -> None:
        self.calls = 0
        self.then = then

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.calls += 1
        if self.then is not None:
            self.then(number, frame)


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def install(handler: Handler) -> None:
    signal.signal(signal.SIGTERM, handler)


def current() -> Handler:
    handler = signal.getsignal(signal.SIGTERM)
    assert callable(handler)
    return handler


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_second_training_is_told_behind_a_trainer_that_put_back_what_it_found() -> None:
    handler, first, second = TerminationHandler(), Told(), Told()
    trainers = Deciding(), Deciding()
    for hook, trainer in zip((first, second), trainers, strict=True):
        install(trainer)
        handler.add(hook)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    install(trainers[1])
    handler.add(second)
    terminate()
    assert [trainer.calls for trainer in trainers] == [0, 1]
    assert (first.noted, second.noted) == (1, 1)
    handler.remove(first)
    handler.remove(second)
    assert current() is trainers[1]


def test_one_that_is_told_twice_is_told_of_what_it_found_last() -> None:
    handler, told = TerminationHandler(), Told()
    for _ in range(2):
        trainer = Deciding()
        install(trainer)
        handler.add(told)
        handler.add(told)
    terminate()
    assert (told.noted, trainer.calls) == (1, 1)
    handler.remove(told)
    assert current() is trainer


def test_handlers_that_call_each_other_in_a_circle_come_to_an_end() -> None:
    handler, told = TerminationHandler(), Told()
    theirs = Deciding()
    install(theirs)
    handler.add(told)
    theirs.then = current()
    install(theirs)
    handler.add(told)
    for times in (1, 2):
        terminate()
        assert told.noted == times
    assert theirs.calls == 4  # as often as ours that have it as the one before
    handler.remove(told)
    assert current() is theirs


def test_an_error_of_a_handler_does_not_silence_the_next_signal() -> None:
    handler, told = TerminationHandler(), Told()

    def failing(*_: object) -> None:
        raise KeyboardInterrupt

    install(failing)
    handler.add(told)
    for times in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            terminate()
        assert told.noted == times
    handler.remove(told)


def test_a_signal_within_a_handler_is_handled_too() -> None:
    handler, told = TerminationHandler(), Told()

    def impatient(number: int, frame: FrameType | None) -> None:
        if told.noted < 3:
            terminate()

    install(impatient)
    handler.add(told)
    terminate()
    assert told.noted == 3
    handler.remove(told)


@pytest.mark.parametrize("is_replaced", [False, True])
def test_what_was_found_is_let_go(is_replaced: bool) -> None:
    handler, told, trainer = TerminationHandler(), Told(), Deciding()
    install(trainer)
    handler.add(told)
    if is_replaced:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    handler.remove(told)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    found = weakref.ref(trainer)
    del trainer
    gc.collect()
    assert found() is None


def test_nobody_is_told_where_the_signal_was_ignored_since() -> None:
    handler, told = TerminationHandler(), Told()
    install(Deciding())
    handler.add(told)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    handler.add(told)
    terminate()
    assert told.noted == 0
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    handler.remove(told)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
