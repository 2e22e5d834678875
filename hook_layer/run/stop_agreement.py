"""Lets several workers stop together, before the same training step.

If one worker stops alone, the others wait for it forever in the next collective operation. So they
agree through their shared key-value store:

1. A worker with a stop request publishes it. A thread of every worker polls for it.
2. The thread then holds its worker: it publishes the number of the training step that the worker
  has begun, and the worker begins no other step before the decision.
3. When all have published, the largest number is the decision: all workers finish that step, and
  stop before the next one. Workers that wait in a collective operation do not block this, because
  their threads respond.

A worker that must not stop yet continues into the next step; so this is a promise, too.

There is a single decision, made by an atomic operation of the store. If not all workers respond in
time, the decision is that all continue. The same happens with a worker without a hook, a closed
hook, or an unavailable store: nobody stops, which is logged.

Only training steps are counted, because workers may evaluate different numbers of times.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from hook_layer.format.job_file import StopFile, parse_stop_file

__all__ = ["KeyValueStore", "StopAgreement", "StopGroup"]

logger = logging.getLogger("stepwatch")

_POLL_S: Final = 1.0
_ANSWER_POLL_S: Final = 0.02
_JOIN_S: Final = 2.0
_STORE_S: Final = 60.0
_CLOSED: Final = "closed"
_NOBODY: Final = "nobody"


class KeyValueStore(Protocol):
    """The required part of `torch.distributed.Store`; calls return at once."""

    def set(self, key: str, value: str) -> None:
        """Write a value."""
        ...

    def get(self, key: str) -> bytes:
        """Return an existing value."""
        ...

    def check(self, keys: list[str]) -> bool:
        """Return whether all keys exist."""
        ...

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        """Write a value unless the key exists (`expected` is empty); return the current value."""
        ...


@dataclass(frozen=True)
class StopGroup:
    """The workers that stop together.

    Attributes:
        store: Their shared store.
        key: Prefix of all keys; the same in all workers, and unique to the group.
        rank: This worker.
        size: Number of workers.
        name: Identifies the training; workers agree only if it is the same in all.
        is_alive: Returns whether the store is still usable.
    """

    store: KeyValueStore
    key: str
    rank: int
    size: int
    name: str = ""
    is_alive: Callable[[], bool] = lambda: True

    def key_of(self, kind: str, rank: int | None = None) -> str:
        """Return the key of a value of the group, or of one worker."""
        return f"{self.key}/{kind}" if rank is None else f"{self.key}/{kind}/{rank}"

    def keys_of(self, kind: str) -> list[str]:
        """Return the keys of a value of all workers."""
        return [self.key_of(kind, rank) for rank in range(self.size)]


class StopAgreement:
    """One worker's part of the agreement.

    Args:
        group: The workers.
        asked: Returns the stop request for this worker, or None.
        poll_s: Interval of checks for a request, seconds.
        timeout_s: Maximum time that workers are held for a decision, seconds.
    """

    def __init__(
        self,
        group: StopGroup,
        asked: Callable[[], StopFile | None],
        *,
        poll_s: float = _POLL_S,
        timeout_s: float = 60.0,
    ) -> None:
        self._group = group
        self._asked = asked
        self._poll_s = min(poll_s, _POLL_S)
        self._timeout_s = timeout_s
        self._pid = os.getpid()
        self._begun = self._promised = 0  # training steps, counted from 1
        self._is_held = False
        self._request: StopFile | None = None
        self._last_step: int | None = None
        self._changed = threading.Condition()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stepwatch-agree", daemon=True)
        with suppress(RuntimeError):  # the interpreter is shutting down
            self._thread.start()

    # Called by the training thread ----------------------------------------------------------------

    def begin_step(self) -> StopFile | None:
        """Begin a training step, unless all workers stop before it.

        Waits while the workers decide.

        Returns:
            The stop request; None if the step begins.
        """
        with self._changed:
            self._wait_if_held()
            if self._is_last:
                return self._request
            self._begun += 1
            self._promised = max(self._promised, self._begun)
        return None

    def stop_now(self) -> StopFile | None:
        """Return the stop request if this worker has begun its last step, else None.

        Waits while the workers decide. None promises to begin another step.
        """
        if os.getpid() != self._pid:  # a fork may copy a held lock
            return None
        with self._changed:
            self._wait_if_held()
            if self._is_last:
                return self._request
            self._promised = max(self._promised, self._begun + 1)
        return None

    def leave(self) -> None:
        """Leave the agreement, and notify the others."""
        self._closed.set()

    def close(self) -> None:
        """Leave, and wait until the other ranks are notified."""
        self.leave()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_JOIN_S)

    @property
    def _is_last(self) -> bool:
        return self._last_step is not None and self._begun >= self._last_step

    def _wait_if_held(self) -> None:
        if not self._is_held or self._promised > self._begun:
            return
        # The thread decides in time or fails, unless the store blocks it.
        if not self._changed.wait_for(lambda: not self._is_held, self._timeout_s + _STORE_S):
            self._is_held = False
            logger.warning("training continues, because the store of the ranks does not answer")

    # Called by its own thread ---------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._group.store.set(self._group.key_of("member", self._group.rank), self._group.name)
            request = self._awaited_request()
            if request is not None and self._all_take_part():
                self._agree(request)
        except Exception as error:  # noqa: BLE001 - training continues after any error
            if self._group.is_alive() and not self._closed.is_set():
                logger.warning(
                    "the ranks can no longer agree on a stop, and training continues: %s", error
                )
        finally:
            self._release(None)

    def _awaited_request(self) -> StopFile | None:
        """Return the request that a worker published; None if a worker closed its hook before."""
        store, key, found = self._group.store, self._group.key_of("request"), b""
        while not self._closed.wait(self._poll_s):
            if not self._group.is_alive():
                return None
            own = self._asked()
            if found and own is not None:
                logger.warning(
                    "a stop was requested, but a rank closed its hook; training continues"
                )
                return None
            if not found and own is not None:
                found = store.compare_set(key, "", own.encode().decode())
            elif not found and store.check([key]):
                found = store.get(key)
            if found not in (b"", _CLOSED.encode()):
                return parse_stop_file(found, file="the workers' store")
        if not found and self._group.is_alive():
            store.compare_set(key, "", _CLOSED)
        return None

    def _all_take_part(self) -> bool:
        """Wait until every worker has a hook of the same name; return whether they have."""
        store, has_warned = self._group.store, False
        while not store.check(self._group.keys_of("member")):
            if not has_warned:
                has_warned = True
                logger.warning(
                    "a stop was requested, but not all %d ranks have a hook that trains, "
                    "so nobody stops. Create a Hook in each rank and register its model, "
                    "whichever ranks write.",
                    self._group.size,
                )
            if self._closed.wait(self._poll_s) or not self._group.is_alive():
                return False
        others = store.get(self._group.key_of("member", 0)).decode()
        if others != self._group.name:
            logger.warning(
                "a stop was requested, but training continues: the hook of rank %d watches "
                "%s, that of rank 0 %s",
                self._group.rank,
                self._group.name,
                others,
            )
            store.compare_set(self._group.key_of("decision"), "", _NOBODY)
        return others == self._group.name

    def _agree(self, request: StopFile) -> None:
        """Hold this worker until the decision."""
        group = self._group
        with self._changed:
            self._is_held = True
            promised = self._promised
        deadline = time.monotonic() + self._timeout_s
        group.store.set(group.key_of("step", group.rank), str(promised))
        decision = group.key_of("decision")
        while not group.store.check([decision]):
            if time.monotonic() > deadline or self._closed.is_set():
                group.store.compare_set(decision, "", _NOBODY)
            elif group.rank == 0 and group.store.check(group.keys_of("step")):
                last = max(int(group.store.get(key)) for key in group.keys_of("step"))
                group.store.compare_set(decision, "", str(last))
            else:
                self._closed.wait(_ANSWER_POLL_S)
        decided = group.store.get(decision).decode()
        if decided == _NOBODY:
            logger.warning("a stop was requested, but training continues: not all ranks answered")
        else:
            logger.warning("all ranks stop after step %s: %s", decided, request.reason)
            self._release(int(decided), request)

    def _release(self, last_step: int | None, request: StopFile | None = None) -> None:
        with self._changed:
            self._is_held = False
            if last_step is not None:
                self._last_step, self._request = last_step, request
            self._changed.notify_all()
