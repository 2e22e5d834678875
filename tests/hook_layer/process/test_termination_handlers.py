"""Handlers of SIGTERM that scripts and trainers install, replace and restore."""

from __future__ import annotations

import gc
import os
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from hook_layer.process.stuck_thread import StuckThreadWatch
from hook_layer.process.termination import TerminationHandler

Handler = Callable[[int, FrameType | None], object]


class Interrupted:
    """Counts the signals that it was notified of."""

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


def test_a_second_training_is_notified_after_a_trainer_restored_the_default() -> None:
    handler, first, second = TerminationHandler(), Interrupted(), Interrupted()
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


def test_a_hook_that_is_added_twice_calls_the_newest_handler() -> None:
    handler, hook = TerminationHandler(), Interrupted()
    for _ in range(2):
        trainer = Deciding()
        install(trainer)
        handler.add(hook)
        handler.add(hook)
    terminate()
    assert (hook.noted, trainer.calls) == (1, 1)
    handler.remove(hook)
    assert current() is trainer


def test_handlers_that_call_each_other_in_a_circle_end() -> None:
    handler, hook = TerminationHandler(), Interrupted()
    theirs = Deciding()
    install(theirs)
    handler.add(hook)
    theirs.then = current()
    install(theirs)
    handler.add(hook)
    for times in (1, 2):
        terminate()
        assert hook.noted == times
    assert theirs.calls == 4  # as often as ours that have it as the one before
    handler.remove(hook)
    assert current() is theirs


def test_an_error_of_a_handler_does_not_silence_the_next_signal() -> None:
    handler, hook = TerminationHandler(), Interrupted()

    def failing(*_: object) -> None:
        raise KeyboardInterrupt

    install(failing)
    handler.add(hook)
    for times in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            terminate()
        assert hook.noted == times
    handler.remove(hook)


def test_a_signal_within_a_handler_is_handled_too() -> None:
    handler, hook = TerminationHandler(), Interrupted()

    def impatient(number: int, frame: FrameType | None) -> None:
        if hook.noted < 3:
            terminate()

    install(impatient)
    handler.add(hook)
    terminate()
    assert hook.noted == 3
    handler.remove(hook)


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_removed_handler_is_released(is_replaced: bool) -> None:
    handler, hook, trainer = TerminationHandler(), Interrupted(), Deciding()
    install(trainer)
    handler.add(hook)
    if is_replaced:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    handler.remove(hook)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    found = weakref.ref(trainer)
    del trainer
    gc.collect()
    assert found() is None


def test_a_signal_that_is_ignored_meanwhile_notifies_no_hook() -> None:
    handler, hook = TerminationHandler(), Interrupted()
    install(Deciding())
    handler.add(hook)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    handler.add(hook)
    terminate()
    assert hook.noted == 0
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    handler.remove(hook)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


def test_handlers_that_call_each_other_do_so_once() -> None:
    handler, first, second, script = TerminationHandler(), Interrupted(), Interrupted(), Deciding()
    install(script)
    handler.add(first)
    chained = Deciding(then=current())
    install(chained)
    handler.add(second)
    terminate()
    assert (script.calls, chained.calls, first.noted, second.noted) == (1, 1, 1, 1)
    handler.remove(first)
    handler.remove(second)
    assert current() is chained


def test_other_threads_install_nothing() -> None:
    handler, hook, script = TerminationHandler(), Interrupted(), Deciding()
    install(script)
    thread = threading.Thread(target=handler.add, args=(hook,))
    thread.start()
    thread.join()
    terminate()
    assert current() is script
    assert (script.calls, hook.noted) == (1, 0)


def test_the_wakeup_descriptor_of_an_event_loop_still_receives_signals() -> None:
    install(Deciding())
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        watch = StuckThreadWatch(signal.SIGTERM, lambda: None, grace_s=1)
        terminate()
        watch.stop()
        assert os.read(reader, 10) == bytes([signal.SIGTERM])
    finally:
        assert signal.set_wakeup_fd(before) == writer
        os.close(reader)
        os.close(writer)
