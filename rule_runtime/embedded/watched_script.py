"""Runs a command whose script has a hook, and evaluates rules meanwhile."""

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
"""Maximum time between two updates of the session, seconds."""
_LOOK_S: Final = 0.05
"""Interval of checks for training processes, seconds."""
_INTERRUPT_S: Final = 2.0
"""Seconds that an interrupted script has to end, if its process group got the interrupt."""
_TERMINAL: Final = "/dev/tty"
_NOTHING: Final[Mapping[str, str]] = {}
_PASSED_ON: Final = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""Signals to this process that are forwarded to the command."""


class Judge(Protocol):
    """The evaluation of a command's runs."""

    @property
    def stopped_by(self) -> str | None:
        """Name of the rule whose finding stops the command; None without one."""
        ...

    def look(self, *, is_over: bool = False) -> bool:
        """Read new files; return whether there was new data."""
        ...


@dataclass(frozen=True)
class ProcessEnd:
    """The result of a command.

    Attributes:
        status: Its exit status; negative for a signal.
        was_interrupted: Whether Ctrl-C was pressed.
        passed_on: The signal that was forwarded to the command; None without one.
        failure: Why the final evaluation is incomplete; None if it is complete.
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
    on_findings: Callable[[], None] = lambda: None,
    stdout: int | None = None,
    stderr: int | None = None,
    environment: Mapping[str, str] = _NOTHING,
    trainings: Callable[[], Sequence[int]] = lambda: (),
    on_turn: Callable[[], None] = lambda: None,
) -> ProcessEnd:
    """Run a command to its end, and evaluate its stored data meanwhile.

    A command that does not end in time after a stop request gets SIGTERM, then SIGKILL, with all
    processes that it started. After Ctrl-C, the function waits for the command, and evaluates the
    stored steps. A second Ctrl-C sends SIGTERM, a third SIGKILL. SIGTERM and SIGHUP to this process
    are forwarded to the command, and the stored steps are evaluated. Temporary storage errors do
    not stop the training: they are logged once, and reading is retried.

    Args:
        command: The command.
        judge: The evaluation of the command's runs.
        patience_s: Seconds that it has to end after a stop request.
        on_findings: Called whenever verdicts may have changed.
        stdout: File descriptor for its standard output; None to inherit this process's.
        stderr: File descriptor for its standard error; None to inherit this process's.
        environment: Additional environment variables.
        trainings: Returns the ids of the training processes, including those that left the command.
        on_turn: Called several times a second while the command runs.

    Raises:
        OSError: The command cannot be run.
    """
    started = subprocess.Popen(  # noqa: S603 - the user's own
        list(command),
        env={**os.environ, **environment, "PYTHONUNBUFFERED": "1"},
        stdout=stdout,
        stderr=stderr,
    )
    process = _Processes(started, trainings)
    with _PassedOnSignals(process) as signals:
        try:
            callbacks = (on_findings, on_turn)
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
        on_findings()
    return ProcessEnd(started.returncode, was_interrupted, signals.received, failure)


def _watch(
    process: _Processes,
    judge: Judge,
    patience_s: float,
    callbacks: tuple[Callable[[], None], Callable[[], None]],
    signals: _PassedOnSignals,
) -> bool:
    """Watch a process to its end, and return whether Ctrl-C was pressed."""
    on_findings, on_turn = callbacks
    stop = _Insistence(process, patience_s, (signal.SIGTERM, signal.SIGKILL))
    termination = _Insistence(process, patience_s, (signal.SIGKILL,))
    looks = _Looks(judge)
    try:
        while not process.have_ended_in(_TURN_S):
            on_turn()
            if looks.try_one():
                on_findings()
            if signals.received is not None:
                termination.insist()
            elif judge.stopped_by is not None:
                stop.insist()
    except KeyboardInterrupt:
        _wait_for_interrupted(process, patience_s)
        return True
    return False


class _Processes:
    """A command with the processes that it started."""

    def __init__(
        self, command: subprocess.Popen[bytes], trainings: Callable[[], Sequence[int]]
    ) -> None:
        self._command = command
        self._trainings = trainings

    def have_ended_in(self, timeout_s: float | None) -> bool:
        """Wait for the command and for training processes, which a shell may leave behind.

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
        """Send a signal to the command and all processes that it started: a shell forwards none."""
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
    """Wait for a process after Ctrl-C. Another Ctrl-C sends SIGTERM, then SIGKILL.

    Usually the process got the interrupt, too. A second one would interrupt its hook while it
    stores data, so it is sent only to a process that continues. If a terminal may have interrupted
    all processes, this waits for `patience_s` first.
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
    """Return whether Ctrl-C may come from a terminal, which also interrupts the script."""
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
    """Forwards SIGTERM and SIGHUP of this process to a command; ignored signals stay ignored.

    Attributes:
        received: The first of them; None if there was none.
    """

    def __init__(self, process: _Processes) -> None:
        self._process = process
        self._before: dict[signal.Signals, Any] = {}
        self.received: signal.Signals | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # Python requires it
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
    """Updates of an evaluation while the command runs; a failed one is logged once and repeated."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._has_failed = False

    def try_one(self) -> bool:
        """Update, and return whether there was new data."""
        try:
            return self._judge.look()
        except StorageError as error:
            if not self._has_failed:
                logger.warning("the run is not evaluated for now and continues: %s", error)
            self._has_failed = True
            return False


class _Insistence:
    """Ends a command that ignores a stop request, with increasingly strong signals."""

    def __init__(
        self, process: _Processes, patience_s: float, signals: Sequence[signal.Signals]
    ) -> None:
        self._process = process
        self._patience_s = patience_s
        self._due_at: float | None = None
        self._signals = iter(signals)

    def insist(self) -> None:
        """Send the next signal when its time has come."""
        now = time.monotonic()
        if self._due_at is not None and now >= self._due_at:
            number = next(self._signals, None)
            if number is not None:
                self._process.signal_all(number)
        if self._due_at is None or now >= self._due_at:
            self._due_at = now + self._patience_s
