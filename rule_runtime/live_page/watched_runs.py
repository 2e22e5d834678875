"""Keeps the list of runs and the opened runs up to date while browsers show them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from hook_layer.storage.base import open_store
from rule_runtime.live_page.catalogue import Catalogue, Place
from rule_runtime.live_page.opened_run import OpenedRun, RulesOf

__all__ = ["WatchedRuns"]

logger = logging.getLogger(__name__)

_MAX_OPENED: Final = 8
"""Runs whose columns are held, the last used ones: up to 512 MB each."""
_LOCAL_S, _REMOTE_S = 0.25, 5.0
"""Seconds between two reads of a shown run: of a folder, and of a bucket."""
_CATALOGUE_S: Final = 2.0
_SHARE_OF_SCANS: Final = 0.1
"""Largest share of the time in which the folder is scanned."""
_WAIT_S: Final = 0.5
"""Maximum seconds until a connection notices the server's end."""


class WatchedRuns:
    """The runs of a folder, updated while a browser is connected.

    Args:
        catalogue: The runs.
        rules: Returns the rules to evaluate on a run.
        are_named: Whether they are evaluated although the run has stored verdicts.
        is_ending: Returns whether the server is about to end.
    """

    def __init__(self, catalogue: Catalogue, rules: RulesOf, *, are_named: bool) -> None:
        self.catalogue = catalogue
        self._rules, self._are_named = rules, are_named
        self._opened: OrderedDict[str, OpenedRun] = OrderedDict()
        self._shown: Counter[str] = Counter()
        self._changed = asyncio.Event()
        self._logged: set[str] = set()
        self.is_ending: Callable[[], bool] = lambda: False

    def place(self, name: str) -> Place:
        """Return where a run is.

        Raises:
            KeyError: There is none of this name.
        """
        if name not in self.catalogue.places:
            self.catalogue.scan(0.0)
        return self.catalogue.places[name]

    def opened(self, name: str) -> OpenedRun:
        """Return the data of a run, after a first look at it.

        Raises:
            KeyError: There is none of this name.
            StorageError: The storage cannot be read.
        """
        found = self._held(name)
        if found is None:
            store = open_store(self.place(name).path)
            found = OpenedRun(store, self._rules, are_named=self._are_named)
            found.refresh()
            found = self._opened.setdefault(name, found)
            while len(self._opened) > _MAX_OPENED:
                self._opened.popitem(last=False)
        with suppress(KeyError):
            self._opened.move_to_end(name)
        return found

    async def follow(self) -> None:
        """Update what browsers show, until it is cancelled."""
        await asyncio.gather(self._follow_catalogue(), self._follow_runs())

    async def changes(self, names: Iterable[str]) -> AsyncIterator[dict[str, object]]:
        """Yield the versions of the list and of some runs whenever one changes."""
        sent: dict[str, object] = {}
        with self._showing(names) as shown:
            while not self.is_ending():
                changed = self._changed
                versions: dict[str, object] = {
                    "catalogue": self.catalogue.version,
                    "runs": {name: self._version(name) for name in shown},
                }
                if versions != sent:
                    sent = versions
                    yield versions
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(changed.wait(), _WAIT_S)

    @contextmanager
    def _showing(self, names: Iterable[str]) -> Iterator[list[str]]:
        shown = list(dict.fromkeys(names))[:_MAX_OPENED]
        self._shown.update([*shown, ""])  # "" is the list of runs
        try:
            yield shown
        finally:
            self._shown.subtract([*shown, ""])

    def _version(self, name: str) -> int | None:
        run = self._held(name)
        return None if run is None else run.version

    def _held(self, name: str) -> OpenedRun | None:
        """Return the data of an opened run, unless the run was deleted."""
        if name not in self.catalogue.places and not self.catalogue.problem:
            self._opened.pop(name, None)
        return self._opened.get(name)

    async def _follow_catalogue(self) -> None:
        while True:
            is_done = True
            if self._shown[""] > 0 or not self.catalogue.version:
                before = self.catalogue.version
                is_done = await self._tried(self.catalogue.scan, otherwise=True)
                if self.catalogue.version != before:
                    self._notify()
            pause = max(_CATALOGUE_S, self.catalogue.seconds / _SHARE_OF_SCANS)
            await asyncio.sleep(pause if is_done else 0.01)

    async def _follow_runs(self) -> None:
        pause = _REMOTE_S if self.catalogue.is_remote else _LOCAL_S
        while True:
            began, is_behind = time.monotonic(), False
            for name, run in list(self._opened.items()):
                if self._shown[name] > 0:
                    is_changed = await self._tried(run.refresh, otherwise=False)
                    if is_changed:
                        self._notify()
                    is_behind |= is_changed and run.num_unread > 0
            await asyncio.sleep(0.01 if is_behind else max(0.05, pause + began - time.monotonic()))

    async def _tried(self, read: Callable[[], bool], *, otherwise: bool) -> bool:
        """Read data; an unexpected error is logged once, and the other runs are still followed."""
        try:
            return await asyncio.to_thread(read)
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            if text not in self._logged:
                self._logged.add(text)
                logger.exception("the page cannot update some data")
            return otherwise

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
