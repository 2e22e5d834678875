"""Passes on what a script logs: to the hook that watches it, or to a run of its own."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

from hook_layer.autopatch.imports import call_after_import
from hook_layer.capture.patched_functions import patch
from hook_layer.configuration.hook_json import load_hook_configuration
from hook_layer.configuration.job import hook_enabled
from hook_layer.current_hook import CurrentHook
from hook_layer.errors import TrainingStoppedError
from hook_layer.frameworks import WATCHED
from hook_layer.logged_scalars import readers
from hook_layer.logged_scalars.libraries import LIBRARIES
from hook_layer.logged_scalars.logger_runs import LoggerRuns
from hook_layer.logged_scalars.numbers_in import numbers_in
from hook_layer.logged_scalars.scalar_run import ScalarRun
from hook_layer.process.process_end import at_process_end
from hook_layer.run.session_log import SessionLog

__all__ = ["watch_library", "watch_logging", "watch_method"]

logger = logging.getLogger("stepwatch")

_PATIENCE_S: Final = 30.0
"""Seconds from the first value until a script that imports a framework is taken not to train."""
_MAX_WAITING: Final = 1000
"""Calls that wait for a training; one more is taken for a script that does not train."""
_MARK: Final = "_stepwatch_reads"
"""Attribute of a method that is watched."""
_Numbers = Mapping[str, float]


class _Nesting(threading.local):
    """Calls of watched loggers in progress in this thread: one logger may call another."""

    depth = 0

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1


class _LoggedScalars:
    """The logged scalars of this process.

    Attributes:
        out_dir: Folder or URI of a run of their own; None: a run of the session, if there is one.
    """

    def __init__(self) -> None:
        self.out_dir: str | None = None
        self._lock = threading.RLock()
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._run: ScalarRun | None = None
        self._has_failed = False
        self._stop: TrainingStoppedError | None = None  # requested in another thread
        self._waiting: deque[tuple[_Numbers, float | None]] = deque()
        self._first_at = 0.0

    def add(self, numbers: _Numbers, step: float | None) -> None:
        """Pass on logged numbers.

        Raises:
            TrainingStoppedError: A stop was requested, and no other hook will raise this; only in
                the main thread, since it would end no more than another one.
        """
        is_in_main_thread = threading.current_thread() is threading.main_thread()
        if self._stop is not None and is_in_main_thread:
            raise self._stop
        try:
            self._add(numbers, step)
        except TrainingStoppedError as error:
            if is_in_main_thread:
                raise
            self._stop = error

    def _add(self, numbers: _Numbers, step: float | None) -> None:
        if self._pid != os.getpid():  # a thread of the parent may have held the lock
            self._lock = threading.RLock()
            self._reset()
        with self._lock:
            hook = CurrentHook.of_any_framework()
            if hook is not None:
                if self._waiting or self._run is not None:
                    self._end_own_run()
                    for each in self._waiting:
                        hook.logged.add(*each)
                    self._waiting.clear()
                if hook.is_active:
                    hook.logged.add(numbers, step)
                else:
                    hook.state.warn_once("scalars logged after the training are not stored")
            elif self._run is not None:
                self._run.log(numbers, step)
            elif self._may_have_own_run():
                self._wait(numbers, step)

    def finish(self) -> None:
        """Write what still waits, at the end of a process that did not train."""
        if self._pid != os.getpid():  # a thread of the parent may have held the lock
            return
        with self._lock, suppress(TrainingStoppedError):
            if self._waiting and CurrentHook.of_any_framework() is None:
                self._begin_own_run()
            self._end_own_run()

    def _may_have_own_run(self) -> bool:
        has_place = self.out_dir is not None or SessionLog.of_environment() is not None
        return has_place and not self._has_failed

    def _wait(self, numbers: _Numbers, step: float | None) -> None:
        if not self._waiting:
            self._first_at = time.monotonic()
            at_process_end(self.finish)
        self._waiting.append((numbers, step))
        may_train = any(name in sys.modules for name in WATCHED)
        has_waited = time.monotonic() - self._first_at >= _PATIENCE_S
        if not may_train or has_waited or len(self._waiting) >= _MAX_WAITING:
            self._begin_own_run()

    def _begin_own_run(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        try:
            configuration = load_hook_configuration() if self.out_dir is None else None
            self._run = ScalarRun(self.out_dir, configuration)
        except Exception as error:  # noqa: BLE001 - the script must not fail
            self._has_failed = True
            logger.warning("logged scalars are not stored: %s", error)
            return
        for numbers, step in waiting:
            self._run.log(numbers, step)

    def _end_own_run(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            run.close()


_nesting: Final = _Nesting()
_scalars: Final = _LoggedScalars()


def watch_logging(out_dir: str | os.PathLike[str] | None = None) -> None:
    """Store the numbers that this script gives to its logging libraries.

    They become tensors `scalar/NAME` of the hook that watches the script. Without a hook, they
    become a run in `out_dir`.

    Args:
        out_dir: Folder or URI for a script without a hook; None: without a hook, nothing is stored.
    """
    if hook_enabled():
        _scalars.out_dir = None if out_dir is None else os.fspath(out_dir)
        for module in LIBRARIES:
            call_after_import(module, partial(watch_library, module))


def watch_library(module: str) -> None:
    """Watch an imported library, once; log what is not seen because the library has changed."""
    for owner, method, reader in LIBRARIES[module]:
        kind = getattr(sys.modules[module], owner, None)
        if hasattr(kind, method):
            watch_method(kind, method, reader)
        else:
            logger.warning("scalars given to %s.%s.%s are not seen", module, owner, method)


def watch_method(kind: Any, method: str, reader: str) -> None:
    """Watch a method of a class, once.

    Args:
        kind: The class.
        method: Name of the method.
        reader: Name of the function in `readers.py` that reads its arguments.
    """
    if not hasattr(getattr(kind, method), _MARK):
        reading = _Reading(reader, f"{kind.__name__}.{method}")
        patch(kind, method, after=reading, within=_nesting)
        setattr(getattr(kind, method), _MARK, True)


class _Reading:
    """Reads the calls of one method; logs the first failure."""

    def __init__(self, reader: str, name: str) -> None:
        self._reader: Callable[..., readers.Logged] = getattr(readers, reader)
        self._runs = LoggerRuns(reader)
        self._name = name
        self._has_failed = False

    def __call__(self, _: object, *args: Any, **kwargs: Any) -> None:
        try:
            self._runs.note(*args, **kwargs)
            if _nesting.depth:
                return
            values, step = self._reader(*args, **kwargs)
            numbers = numbers_in(values)
            if numbers:
                _scalars.add(numbers, None if step is None else float(step))
        except TrainingStoppedError:
            raise
        except Exception as error:  # noqa: BLE001 - the script must not fail
            if not self._has_failed:
                self._has_failed = True
                logger.warning("some values given to %s are not stored: %s", self._name, error)
