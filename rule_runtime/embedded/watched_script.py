"""Running a command whose script has a hook in it, beside the rules that judge it."""

from __future__ import annotations

import logging
import math
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

import psutil
from typing_extensions import Self

from hook_layer.storage.base import StorageError

__all__ = ["Judge", "ProcessEnd", "watch_process"]

logger = logging.getLogger("stepwatch")

_TURN_S: Final = 0.2
"""Longest time between two looks at the session, seconds."""
_LOOK_S: Final = 0.05
"""Time between two looks for processes that train, seconds."""
_INTERRUPT_S: Final = 2.0
"""Seconds in which a script that got an interrupt itself, by its process group, may end."""
_TERMINAL: Final = "/dev/tty"
_NOTHING: Final[Mapping[str, str]] = {}
_PASSED_ON: Final = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""Signals to this process that are passed on to the command."""


class Judge(Protocol):
    """What looks at the runs of a command."""

    @property
    def stopped_by(self) -> str | None:
        """Name of the rule whose finding is to end the command; None while none is."""
        ...

    def look(self, *, is_over: bool = False) -> bool:
        """Take in what was stored since; return whether there was anything new."""
        ...


@dataclass(frozen=True)
class ProcessEnd:
    """How a command ended.

    Attributes:
        status: Its exit status; below 0 for the signal that ended it.
        was_interrupted: Whether somebody pressed Ctrl-C.
        passed_on: The signal that this process got and passed on to the command; None for none.
        failure: Why not all that was stored could be judged in the end; None if all was.
    """

    status: int
    was_interrupted: bool = False
    passed_on: signal.Signals | None = None
    failure: StorageError | None = None


def watch_process(
    command: Sequence[str],
    judge: Judge,
    *,
    patience_s: float,
    on_news: Callable[[], None] = lambda: None,
    stdout: int | None = None,
    environment: Mapping[str, str] = _NOTHING,
    trainings: Callable[[], Sequence[int]] = lambda: (),
    on_turn: Callable[[], None] = lambda: None,
) -> ProcessEnd:
    """Run a command to its end while a judge looks at what it stores.

    A command that was asked to stop and does not end in time gets SIGTERM, then SIGKILL, with all
    processes that it started. At Ctrl-C it is waited for, and judged as far as it came; a second
    Ctrl-C sends SIGTERM, a third SIGKILL. SIGTERM and SIGHUP to this process are passed on to the
    command, which is then judged as far as it came. A storage that cannot be read for a while costs
    no training: it is logged once, and read again.

    Args:
        command: The command.
        judge: What looks at the runs of the command.
        patience_s: Seconds that it may take to end once it was asked to.
        on_news: Called whenever verdicts may have changed.
        stdout: File descriptor that its standard output goes to; None: the one of this process.
        environment: Variables that it has besides those of this process.
        trainings: Returns the ids of the processes that train, also of those that left the command.
        on_turn: Called several times a second while the command runs.

    Raises:
        OSError: The command cannot be run.
    """
    started = subprocess.Popen(  # noqa: S603 - the user's own
        list(command),
        env={**os.environ, **environment, "PYTHONUNBUFFERED": "1"},
        stdout=stdout,
    )
    process = _Processes(started, trainings)
    with _PassedOnSignals(process) as signals:
        try:
            callbacks = (on_news, on_turn)
            was_interrupted = _watch(process, judge, patience_s, callbacks, signals)
        except BaseException:
            process.signal_all(signal.SIGTERM)
            process.have_ended_in(patience_s)
            raise
        failure: StorageError | None = None
        try:
            judge.look(is_over=True)
        except StorageError as error:
            failure = error
        on_news()
    return ProcessEnd(started.returncode, was_interrupted, signals.received, failure)


def _watch(
    process: _Processes,
    judge: Judge,
    patience_s: float,
    callbacks: tuple[Callable[[], None], Callable[[], None]],
    signals: _PassedOnSignals,
) -> bool:
    """Watch a process to its end, and return whether somebody pressed Ctrl-C."""
    on_news, on_turn = callbacks
    stop = _Insistence(process, patience_s, (signal.SIGTERM, signal.SIGKILL))
    termination = _Insistence(process, patience_s, (signal.SIGKILL,))
    looks = _Looks(judge)
    try:
        while not process.have_ended_in(_TURN_S):
            on_turn()
            if looks.try_one():
                on_news()
            if signals.received is not None:
                termination.insist()
            elif judge.stopped_by is not None:
                stop.insist()
    except KeyboardInterrupt:
        _wait_for_interrupted(process, patience_s)
        return True
    return False


class _Processes:
    """A command, and the processes that it started."""

    def __init__(
        self, command: subprocess.Popen[bytes], trainings: Callable[[], Sequence[int]]
    ) -> None:
        self._command = command
        self._trainings = trainings

    def have_ended_in(self, timeout_s: float | None) -> bool:
        """Wait for the command and for what trains, which a shell may leave behind.

        Returns:
            Whether they ended.
        """
        until = math.inf if timeout_s is None else time.monotonic() + timeout_s
        try:
            self._command.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        while self._trainings():
            if time.monotonic() >= until:
                return False
            time.sleep(_LOOK_S)
        return True

    def signal_all(self, number: signal.Signals) -> None:
        """Send a signal to the command and to all that it started: a shell passes none on."""
        for pid in self._started():
            with suppress(OSError):  # it has just ended
                os.kill(pid, number)
        self._command.send_signal(number)

    def _started(self) -> set[int]:
        pids = set[int]()
        for root in (self._command.pid, *self._trainings()):
            with suppress(psutil.Error):
                children = psutil.Process(root).children(recursive=True)
                pids |= {root, *(child.pid for child in children)}
        return pids - {self._command.pid}


def _wait_for_interrupted(process: _Processes, patience_s: float) -> None:
    """Wait for a process that Ctrl-C should end. Another Ctrl-C sends SIGTERM, then SIGKILL.

    Usually the process got the interrupt, too. A second one would interrupt its hook while it
    stores data, so only a process that continues gets it. If a terminal may have interrupted all
    processes, this waits for `patience_s` first.
    """
    grace_s = max(_INTERRUPT_S, patience_s) if _may_terminal_interrupt_all() else _INTERRUPT_S
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            if not process.have_ended_in(grace_s):
                if number is signal.SIGTERM:
                    process.signal_all(signal.SIGINT)
                process.have_ended_in(None)
        except KeyboardInterrupt:  # noqa: PERF203 - each turn waits
            process.signal_all(number)
    process.have_ended_in(None)


def _may_terminal_interrupt_all() -> bool:
    """Return whether Ctrl-C may come from a terminal, which interrupts the script as well."""
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


class _PassedOnSignals:
    """Passes SIGTERM and SIGHUP to this process on to a command; one that is ignored stays so.

    Attributes:
        received: The first of them; None for none so far.
    """

    def __init__(self, process: _Processes) -> None:
        self._process = process
        self._before: dict[signal.Signals, Any] = {}
        self.received: signal.Signals | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # no other may say what they do
            for number in _PASSED_ON:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._pass_on)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _pass_on(self, number: int, _: object) -> None:
        if self.received is None:
            self.received = signal.Signals(number)
            self._process.signal_all(self.received)


class _Looks:
    """Looks of a judge while the command runs: one that fails is logged, once, and made again."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._has_failed = False

    def try_one(self) -> bool:
        """Look, and return whether there was anything new."""
        try:
            return self._judge.look()
        except StorageError as error:
            if not self._has_failed:
                logger.warning("the run is not evaluated for now and continues: %s", error)
            self._has_failed = True
            return False


class _Insistence:
    """Ends a command that was asked to end and does not, by one signal after the other."""

    def __init__(
        self, process: _Processes, patience_s: float, signals: Sequence[signal.Signals]
    ) -> None:
        self._process = process
        self._patience_s = patience_s
        self._due_at: float | None = None
        self._signals = iter(signals)

    def insist(self) -> None:
        """Send the next signal if its time has come."""
        now = time.monotonic()
        if self._due_at is not None and now >= self._due_at:
            number = next(self._signals, None)
            if number is not None:
                self._process.signal_all(number)
        if self._due_at is None or now >= self._due_at:
            self._due_at = now + self._patience_s
