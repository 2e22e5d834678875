"""Small files of a trial that could not be stored yet.

They are owed: tried again after the next step that is stored, and at the end. Their failures say
nothing about the steps (a role may forbid to delete, or to overwrite), and so have a circuit
breaker of their own.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import TypeAlias

from hook_layer.circuit_breaker import CircuitBreaker
from hook_layer.counters import WriterCounters
from hook_layer.storage.base import Store, StoreRefusedError

__all__ = ["Content", "OwedFiles"]

logger = logging.getLogger("stepwatch")

Content: TypeAlias = "bytes | Callable[[], bytes]"
"""Content of a small file, or what returns it when the file is stored."""


class OwedFiles:
    """The small files of a trial that are not stored yet.

    Args:
        store: Where to.
        counters: Where errors are counted.
        clock: Returns a time that only grows, seconds.

    Attributes:
        last: Key and content of the file that comes behind all steps and other files, once there
            is one.
    """

    def __init__(
        self,
        store: Store,
        counters: WriterCounters,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.last: tuple[str, Content] | None = None
        self._store = store
        self._counters = counters
        self._breaker = CircuitBreaker(clock=clock)
        self._contents: dict[str, Content] = {}
        self._refused: set[str] = set()
        self._complained: set[str] = set()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._contents)

    @property
    def are_hopeless(self) -> bool:
        """Whether what is left was refused, so that there is no use in waiting."""
        left = set(self._contents) | ({self.last[0]} if self.last else set())
        return left <= self._refused

    def wait_s(self) -> float:
        """Return the time until they are worth trying again, seconds; 0: now."""
        return self._breaker.wait_s()

    def owe(self, key: str, content: Content) -> None:
        """Note that a file is to be stored; an older one of this key is not wanted any more."""
        with self._lock:
            self._contents.pop(key, None)
            self._contents[key] = content

    def pay(self, keys: Iterable[str] | None = None) -> None:
        """Store files that are owed; those that fail stay owed.

        Args:
            keys: Which; None: all.
        """
        for key in list(self._contents) if keys is None else keys:
            content = self._contents[key]
            if self._stores(key, content):
                with self._lock:
                    if self._contents.get(key) is content:
                        del self._contents[key]

    def pay_last(self) -> None:
        """Store the last file, if there is one."""
        if self.last is not None and self._stores(*self.last):
            self.last = None

    def take_all(self) -> tuple[dict[str, Content], tuple[str, Content] | None]:
        """Return what is left, and the last file; they are owed no more."""
        with self._lock:
            left, last = self._contents, self.last
            self._contents, self.last = {}, None
        return left, last

    def complain(self, what: str, error: Exception) -> None:
        """Count an error; log it, once for each thing that was tried."""
        self._counters.file_errors += 1
        if what not in self._complained:
            self._complained.add(what)
            logger.warning("%s in %s failed: %s", what, self._store.uri, error)

    def _stores(self, key: str, content: Content) -> bool:
        try:
            self._store.put(key, content if isinstance(content, bytes) else content())
        except Exception as error:  # noqa: BLE001 - it is tried again
            self._breaker.failed()
            if isinstance(error, StoreRefusedError):
                self._refused.add(key)
            self.complain(f"storing {key}", error)
            return False
        self._breaker.succeeded()
        return True
