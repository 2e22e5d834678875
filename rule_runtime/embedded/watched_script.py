"""Running a training script, unchanged, with a hook in it, beside the rules that judge it."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hook_layer.storage.base import StorageError
from rule_runtime.embedded.live_judge import LiveJudge

__all__ = ["ProcessEnd", "hooked_command", "script_name", "watch_process"]

logger = logging.getLogger("stepwatch")

_PYTHON: Final = re.compile(r"python(\d+(\.\d+)?)?(\.exe)?")
_WITH_VALUE: Final = re.compile("-(?P<others>[^cmWX]*)(?P<letter>[cmWX])(?P<value>.*)")
"""Switches of Python of which the last has a value, behind it or as the next argument."""
_LONG_WITH_VALUE: Final = "--check-hash-based-pycs"
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


def hooked_command(command: Sequence[str], config: Path) -> list[str]:
    """Return the command that runs the same script with a hook in it.

    Args:
        command: `python SCRIPT ...`, `python -m MODULE ...` or `SCRIPT.py ...`.
        config: Configuration file of the hook.

    Raises:
        ValueError: It is none of these, there is no such script, or that Python does not have this
            package.
        OSError: There is no such Python.
    """
    program, *arguments = command
    if program.endswith(".py"):
        program, arguments = sys.executable, [program, *arguments]
    elif _PYTHON.fullmatch(Path(program).name) is None:
        raise ValueError(
            f"{program!r} is neither Python nor a script of it: write `-- python train.py ...`; "
            "for launchers that start Python themselves switch the start-up file on "
            "(`stepwatch autopatch on`) and set STEPWATCH_CONFIG"
        )
    switches, arguments = _divided(arguments)
    if not arguments:
        raise ValueError(f"{' '.join(command)!r} names no script: write `-- python train.py ...`")
    if arguments[0] != "-m" and not Path(arguments[0]).is_file():
        raise ValueError(f"{arguments[0]}: there is no such script")
    _check_python(program)
    return [program, *switches, "-m", "hook_layer", "--config", str(config), *arguments]


def script_name(command: Sequence[str]) -> str:
    """Return the name of the script or module that a command runs, without folder and package.

    Args:
        command: As of `hooked_command`.
    """
    program, *arguments = command
    script = [program] if program.endswith(".py") else _divided(arguments)[1]
    if script[:1] == ["-m"]:
        return script[1].removesuffix(".__main__").rpartition(".")[2]
    return Path(script[0]).stem if script else "script"


def _divided(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the switches of Python, and the script or `-m MODULE` with what stands behind it.

    The latter is empty where there is none.
    """
    rest = list(arguments)
    switches: list[str] = []
    while rest and rest[0].startswith("-"):
        switch = rest.pop(0)
        if switch == "-":  # the script comes by standard input
            return switches, []
        found = None if switch.startswith("--") else _WITH_VALUE.search(switch)
        takes_next = switch == _LONG_WITH_VALUE or (found is not None and not found["value"])
        following = [rest.pop(0)] if takes_next and rest else []
        if found is None or found["letter"] in "WX":
            switches += [switch, *following]
            continue
        if found["others"]:
            switches.append(f"-{found['others']}")
        module = [found["value"]] if found["value"] else following
        return switches, ["-m", *module, *rest] if found["letter"] == "m" and module else []
    return switches, rest


def _check_python(program: str) -> None:
    look = "import importlib.util as u, sys; sys.exit(u.find_spec('hook_layer') is None)"
    if subprocess.run([program, "-c", look], check=False).returncode != 0:  # noqa: S603 - see above
        raise ValueError(
            f"{program!r} is a Python in which stepwatch is not installed: install it there, or "
            f"give the one that has it, {sys.executable}"
        )


def watch_process(
    command: Sequence[str],
    judge: LiveJudge,
    *,
    patience_s: float,
    on_news: Callable[[], None] = lambda: None,
    stdout: int | None = None,
    environment: Mapping[str, str] = _NOTHING,
) -> ProcessEnd:
    """Run a command to its end while a judge looks at what it stores.

    A command that was asked to stop and does not end in time gets SIGTERM, then SIGKILL. At Ctrl-C
    it is waited for, and judged as far as it came; once more is SIGTERM, then SIGKILL. A SIGTERM to
    this process is passed on to it. A storage that cannot be read for a while costs no training: it
    is told once, and looked at again.

    Args:
        command: The command.
        judge: What looks at the folder that the command writes to.
        patience_s: Seconds that it may take to end once it was asked to.
        on_news: Called whenever verdicts may have changed.
        stdout: File descriptor that its standard output goes to; None: the one of this process.
        environment: Variables that it has besides those of this process.

    Raises:
        OSError: The command cannot be run.
        StorageError: The storage cannot be read once the command has ended.
        SystemExit: This process was sent SIGTERM.
    """
    with _termination_raises():
        process = subprocess.Popen(  # noqa: S603 - the user's own
            list(command),
            env={**os.environ, **environment, "PYTHONUNBUFFERED": "1"},
            stdout=stdout,
        )
        insistence = _Insistence(process, patience_s)
        looks = _Looks(judge)
        was_interrupted = False
        try:
            try:
                while not _has_ended(process):
                    if looks.try_one():
                        on_news()
                    if judge.stopped_by is not None:
                        insistence.go_on()
            except KeyboardInterrupt:
                was_interrupted = True
                _wait_for_interrupted(process, patience_s)
        except BaseException:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(patience_s)
            raise
    judge.look(is_over=True)
    on_news()
    return ProcessEnd(process.returncode, was_interrupted)


def _wait_for_interrupted(process: subprocess.Popen[bytes], patience_s: float) -> None:
    """Wait for a process that is to end by Ctrl-C; once more sends SIGTERM, then SIGKILL.

    It mostly got the interrupt as well. A second one would break off what its hook stores, so it is
    sent only to a process that goes on; behind a terminal, which tells all, after the patience.
    """
    grace_s = max(_INTERRUPT_S, patience_s) if _terminal_tells_all() else _INTERRUPT_S
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            try:
                process.wait(grace_s)
            except subprocess.TimeoutExpired:
                if number is signal.SIGTERM:
                    process.send_signal(signal.SIGINT)
                process.wait()
        except KeyboardInterrupt:  # noqa: PERF203 - each turn waits
            process.send_signal(number)
    process.wait()


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


@contextmanager
def _termination_raises() -> Iterator[None]:
    """Let SIGTERM end this process by an exception, so that the script is not left behind."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may say what a signal does
        return
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(_TURN_S)
    except subprocess.TimeoutExpired:
        return False
    return True


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
    """Ends a process that was asked to stop and does not: SIGTERM in time, then SIGKILL.

    Args:
        process: The process.
        patience_s: Seconds ahead of each signal.
    """

    def __init__(self, process: subprocess.Popen[bytes], patience_s: float) -> None:
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
                self._process.send_signal(number)
            self._due_at = now + self._patience_s
