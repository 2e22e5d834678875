"""Running a command whose script has a hook in it, beside the rules that judge it."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from hook_layer.storage.base import StorageError
from rule_runtime.embedded.live_judge import LiveJudge

__all__ = ["ProcessEnd", "watch_process"]

logger = logging.getLogger("stepwatch")

_TURN_S: Final = 0.2
"""Longest time between two looks at the folder, seconds."""
_INTERRUPT_S: Final = 2.0
"""Seconds in which a script that got an interrupt itself, by its process group, may end."""
_TERMINAL: Final = "/dev/tty"
_NOTHING: Final[Mapping[str, str]] = {}


@dataclass(frozen=True)
class ProcessEnd:
    """How a command ended.

    Attributes:
        status: Its exit status; below 0 for the signal that ended it.
        was_interrupted: Whether somebody pressed Ctrl-C.
    """

    status: int
    was_interrupted: bool = False


def watch_process(
    command: Sequence[str],
    judge: LiveJudge,
    *,
    patience_s: float,
    on_news: Callable[[], None] = lambda: None,
    stdout: int | None = None,
    environment: Mapping[str, str] = _NOTHING,
    trainings: Callable[[], Sequence[int] | None] = lambda: None,
    on_turn: Callable[[], None] = lambda: None,
) -> ProcessEnd:
    """Run a command to its end while a judge looks at what it stores.

    A training that was asked to stop and does not end in time gets SIGTERM, then SIGKILL; a command
    goes on behind it. At Ctrl-C it is waited for, and judged as far as it came; once more is
    SIGTERM, then SIGKILL. A SIGTERM to this process is passed on to it. A storage that cannot be
    read for a while costs no training: it is told once, and looked at again.

    Args:
        command: The command.
        judge: What looks at the folder that the command writes to.
        patience_s: Seconds that it may take to end once it was asked to.
        on_news: Called whenever verdicts may have changed.
        stdout: File descriptor that its standard output goes to; None: the one of this process.
        environment: Variables that it has besides those of this process.
        trainings: Returns which of the processes that it started train; None where that is not
            known, and it counts as the training itself.
        on_turn: Called several times a second while the command runs.

    Raises:
        OSError: The command cannot be run.
        StorageError: The storage cannot be read once the command has ended.
        SystemExit: This process was sent SIGTERM.
    """
    with _termination_raises():
        started = subprocess.Popen(  # noqa: S603 - the user's own
            list(command),
            env={**os.environ, **environment, "PYTHONUNBUFFERED": "1"},
            stdout=stdout,
        )
        process = _Processes(started, trainings)
        try:
            was_interrupted = _watch(process, judge, patience_s, (on_news, on_turn))
        except BaseException:
            process.signal_all(signal.SIGTERM)
            process.has_ended_in(patience_s)
            raise
    judge.look(is_over=True)
    on_news()
    return ProcessEnd(started.returncode, was_interrupted)


def _watch(
    process: _Processes,
    judge: LiveJudge,
    patience_s: float,
    callbacks: tuple[Callable[[], None], Callable[[], None]],
) -> bool:
    """Watch a process to its end, and return whether somebody pressed Ctrl-C."""
    on_news, on_turn = callbacks
    insistence = _Insistence(process, patience_s)
    looks = _Looks(judge)
    try:
        while not process.has_ended_in(_TURN_S):
            on_turn()
            if looks.try_one():
                on_news()
            if judge.stopped_by is not None:
                insistence.go_on()
    except KeyboardInterrupt:
        _wait_for_interrupted(process, patience_s)
        return True
    return False


class _Processes:
    """A command, and the processes behind it that train.

    Args:
        command: The command.
        trainings: As of `watch_process`.
    """

    def __init__(
        self, command: subprocess.Popen[bytes], trainings: Callable[[], Sequence[int] | None]
    ) -> None:
        self._command = command
        self._trainings = trainings

    def has_ended_in(self, timeout_s: float | None) -> bool:
        """Wait for the command, so many seconds at most; tell whether it ended."""
        try:
            self._command.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def signal_all(self, number: signal.Signals) -> None:
        """Send a signal to the command, and to what trains behind it: a shell passes none on."""
        self._send(number, {self._command.pid, *(self._trainings() or ())})

    def signal_trainings(self, number: signal.Signals) -> None:
        """Send a signal to what trains."""
        trainings = self._trainings()
        self._send(number, [self._command.pid] if trainings is None else trainings)

    def _send(self, number: signal.Signals, pids: Iterable[int]) -> None:
        for pid in pids:
            if pid == self._command.pid:
                self._command.send_signal(number)
                continue
            with suppress(OSError):  # it has just ended
                os.kill(pid, number)


def _wait_for_interrupted(process: _Processes, patience_s: float) -> None:
    """Wait for a process that is to end by Ctrl-C; once more sends SIGTERM, then SIGKILL.

    It mostly got the interrupt as well. A second one would break off what its hook stores, so it is
    sent only to a process that goes on; behind a terminal, which tells all, after the patience.
    """
    grace_s = max(_INTERRUPT_S, patience_s) if _terminal_tells_all() else _INTERRUPT_S
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            if not process.has_ended_in(grace_s):
                if number is signal.SIGTERM:
                    process.signal_all(signal.SIGINT)
                process.has_ended_in(None)
        except KeyboardInterrupt:  # noqa: PERF203 - each turn waits
            process.signal_all(number)
    process.has_ended_in(None)


def _terminal_tells_all() -> bool:
    """Tell whether Ctrl-C may come from a terminal, which interrupts the script as well."""
    try:
        terminal = os.open(_TERMINAL, os.O_RDONLY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


class _TerminatedError(BaseException):
    """SIGTERM; no `SystemExit`, which is a rule's own fault where it comes while one judges."""


def _terminate(*_: object) -> None:
    raise _TerminatedError


@contextmanager
def _termination_raises() -> Iterator[None]:
    """Let SIGTERM end this process by an exception, so that the script is not left behind.

    Raises:
        SystemExit: This process was sent SIGTERM.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may say what a signal does
        return
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    except _TerminatedError:
        raise SystemExit(128 + signal.SIGTERM) from None
    finally:
        signal.signal(signal.SIGTERM, before)


class _Looks:
    """Looks of a judge at a run that goes on: one that fails is told, once, and made again.

    Args:
        judge: The judge.
    """

    def __init__(self, judge: LiveJudge) -> None:
        self._judge = judge
        self._has_failed = False

    def try_one(self) -> bool:
        """Look, and return whether there was anything new."""
        try:
            return self._judge.look()
        except StorageError as error:
            if not self._has_failed:
                logger.warning("the run is not judged for now, the training goes on: %s", error)
            self._has_failed = True
            return False


class _Insistence:
    """Ends a training that was asked to stop and does not: SIGTERM in time, then SIGKILL.

    Args:
        process: The process.
        patience_s: Seconds ahead of each signal.
    """

    def __init__(self, process: _Processes, patience_s: float) -> None:
        self._process = process
        self._patience_s = patience_s
        self._due_at: float | None = None
        self._signals = iter((signal.SIGTERM, signal.SIGKILL))

    def go_on(self) -> None:
        now = time.monotonic()
        if self._due_at is None:
            self._due_at = now + self._patience_s
        elif now >= self._due_at:
            number = next(self._signals, None)
            if number is not None:
                self._process.signal_trainings(number)
            self._due_at = now + self._patience_s
