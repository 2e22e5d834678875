"""Writes metadata files of a trial and cleans up its store.

A file that cannot be stored is retried after the next stored step, and at the end. Failures of
these files are independent of the steps, because a role may forbid deleting or overwriting. So they
have their own circuit breaker.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from hook_layer.delivery.backlog import Backlog
from hook_layer.delivery.circuit_breaker import CircuitBreaker
from hook_layer.delivery.counters import WriterCounters
from hook_layer.delivery.store_health import StoreHealth
from hook_layer.storage.base import Store, StoreRefusedError

__all__ = ["Content", "SmallFiles"]

logger = logging.getLogger("stepwatch")

Content: TypeAlias = "bytes | Callable[[], bytes]"
"""Content of a small file, or a function that returns it when the file is stored."""


class SmallFiles:
    """The small files of a trial; never raises.

    One thread at a time may use the store; any thread may call `owe`, `put_last` and `defer`.
    """

    def __init__(
        self,
        store: Store,
        health: StoreHealth,
        counters: WriterCounters,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._health = health
        self._counters = counters
        self._breaker = CircuitBreaker(clock=clock)
        self._owed: dict[str, Content] = {}
        self._last: tuple[str, Content] | None = None
        self._deferred: list[Callable[[], None]] = []
        self._refused: set[str] = set()
        self._complained: set[str] = set()
        self._lock = threading.RLock()  # a signal may interrupt who has it

    @property
    def is_done(self) -> bool:
        """Whether no work is left."""
        return not (self._owed or self._last or self._deferred)

    @property
    def is_hopeless(self) -> bool:
        """Whether all remaining files were refused, so that waiting does not help."""
        last = set() if self._last is None else {self._last[0]}
        return not self._deferred and set(self._owed) | last <= self._refused

    def wait_s(self) -> float:
        """Return the time until the next attempt makes sense, seconds; 0: now."""
        return self._breaker.wait_s()

    def put(self, key: str, content: Content) -> None:
        """Store a small file, now or later."""
        self.owe(key, content)
        if self._health.breaker.allows():
            self._pay(key)

    def owe(self, key: str, content: Content) -> None:
        """Store a small file later; this replaces an older content of the key."""
        with self._lock:
            self._owed.pop(key, None)
            self._owed[key] = content

    def put_last(self, key: str, content: Content) -> None:
        """Store a small file after everything else."""
        self._last = (key, content)

    def housekeep(self, what: str, action: Callable[[], object]) -> None:
        """Run an action whose failure does no harm."""
        error = self._health.call(action)
        if error is not None:
            self._complain(what, error)

    def defer(self, what: str, action: Callable[[], object]) -> None:
        """Run an action whose failure does no harm, later."""
        with self._lock:
            self._deferred.append(partial(self.housekeep, what, action))

    def pay_if_due(self) -> None:
        """Retry pending files, unless attempts failed recently; files that fail stay pending."""
        if self._breaker.allows():
            for key in list(self._owed):
                self._pay(key)

    def finish(self) -> None:
        """Do all remaining work, and store the last file."""
        with self._lock:
            deferred, self._deferred = self._deferred, []
        for action in deferred:
            action()
        for key in list(self._owed):
            self._pay(key)
        if self._last is not None and self._stores(*self._last):
            self._last = None

    def leave_in(self, backlog: Backlog) -> None:
        """Put pending files into the spool, for later delivery."""
        with self._lock:
            files = [(key, content, False) for key, content in self._owed.items()]
        if self._last is not None:
            files.append((*self._last, True))
        self._counters.files_undelivered = len(files)
        for key, content, is_last in files:
            data = content if isinstance(content, bytes) else content()
            error = self._health.call(partial(backlog.put_file, key, data, is_last=is_last))
            if error is not None:
                self._complain(f"keeping {key} on local disk", error)

    def _pay(self, key: str) -> None:
        content = self._owed[key]
        if self._stores(key, content):
            with self._lock:
                if self._owed.get(key) is content:
                    del self._owed[key]

    def _stores(self, key: str, content: Content) -> bool:
        error = self._health.call(
            lambda: self._store.put(key, content if isinstance(content, bytes) else content())
        )
        if error is None:
            self._breaker.succeeded()
            self._refused.discard(key)
            return True
        self._breaker.failed()
        if isinstance(error, StoreRefusedError):
            self._refused.add(key)
        self._complain(f"storing {key}", error)
        return False

    def _complain(self, what: str, error: Exception) -> None:
        """Count an error; log it once per action."""
        self._counters.file_errors += 1
        if what not in self._complained:
            self._complained.add(what)
            logger.warning("%s in %s failed: %s", what, self._store.uri, error)
