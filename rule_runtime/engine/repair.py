"""Finding files of which no event told, by listing the index while the job runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from hook_layer.format.paths import index_key
from hook_layer.storage.base import Store
from rule_runtime.engine.file_order import FILES_AT_ONCE, FileName
from rule_runtime.engine.run_feed import RunFeed
from rule_runtime.engine.run_progress import Scan
from rule_runtime.trial.step_index import list_index_files

__all__ = ["Repair"]


class Repair:
    """Lists the index behind the last step that was fed, and takes in what was not known.

    A listing for which a call has no time continues with the next one. Which files of a folder
    belong to another run only reading them tells; so how far they were read is kept. Where files
    carry no number it is not: there a listing tells what a worker has passed only if it is made in
    one go.

    Args:
        store: The trial's root.
        feed: The run's way to the rule.
    """

    def __init__(self, store: Store, feed: RunFeed) -> None:
        self._store = store
        self._feed = feed
        self._tracker = feed.tracker

    def look_if_needed(self, *, has_news: bool) -> None:
        """List the index only if the known files do not show which others exist.

        Args:
            has_news: True if a file was seen that was not known when the index was last listed.
        """
        tracker = self._tracker
        tracks = tracker.workers.values()
        if tracker.scan is not None:
            self._go_on(tracker.scan)
            return
        unsequenced = any(0 in track.pending.values() for track in tracks)
        holes = any(track.has_new_hole for track in tracks)
        names = bool(tracks) and not tracker.names_known
        forgotten = tracker.has_forgotten
        if tracker.room > 0 and (forgotten or (has_news and (unsequenced or holes or names))):
            is_bounded = not (unsequenced or forgotten)
            last = max(tracker.pending_steps(), default=tracker.fed_step) if is_bounded else None
            self._go_on(self._begun(Scan(tracker.fed_step, last)))

    def look(self, *, brief: bool) -> None:
        """List the index in any case.

        Args:
            brief: True to stop once 256 files were read in vain.
        """
        self._go_on(self._begun(Scan(self._tracker.fed_step, None, brief)))

    def _begun(self, scan: Scan) -> Scan:
        # A hole that shows while the listing is under way may lie where it has been already.
        for track in self._tracker.workers.values():
            if track.has_hole:
                track.listed = max(track.listed, track.highest)
        return scan

    def _go_on(self, scan: Scan) -> None:
        tracker, is_whole = self._tracker, True
        tracker.scan = scan
        for names in self._listed(scan):
            shown, keys = self._with_room(names)
            is_news = self._feed.load(keys)
            self._pass(shown)
            is_whole = len(shown) == len(names)
            if not is_whole or (scan.brief and not is_news):
                break
            tracker.scan = replace(scan, after=names[-1][0])
            may_stop = is_news or not self._is_unsequenced
            if may_stop and not self._feed.budget.goes_on():
                return
        tracker.scan = None
        is_all = scan.last is None and not scan.brief
        for track in tracker.workers.values():
            track.forgotten = not is_whole or (track.forgotten and not is_all)

    def _listed(self, scan: Scan) -> Iterator[list[FileName]]:
        """Yield what a listing shows, about as much at once as there is room for new files."""
        fed_step = self._tracker.fed_step
        after = fed_step if self._is_unsequenced else max(fed_step, scan.after)
        listed = list_index_files(self._store, after_step=after)
        names: list[FileName] = []
        num_new = 0
        for step, of_step in groupby(listed, key=lambda item: item[1].step):
            if scan.last is not None and step > scan.last:
                break
            workers = [name.worker for _, name in of_step]
            names += [(step, worker) for worker in workers]
            num_new += sum(not self._is_known(step, worker) for worker in workers)
            if num_new >= max(min(FILES_AT_ONCE, self._tracker.room), 1):
                yield names
                names, num_new = [], 0
        if names:
            yield names

    def _with_room(self, names: Sequence[FileName]) -> tuple[Sequence[FileName], list[str]]:
        """Return the first names, with the keys of those not known, for which there is room."""
        room = max(self._tracker.room, 0)
        keys: list[str] = []
        for at, name in enumerate(names):
            if self._is_known(*name):
                continue
            if len(keys) >= room:
                return names[:at], keys
            keys.append(index_key(*name))
        return names, keys

    def _pass(self, shown: Iterable[FileName]) -> None:
        """Note up to where workers whose files carry no number can have left out nothing."""
        for step, worker in shown:
            track = self._tracker.workers.get(worker)
            if track is not None and track.unsequenced:
                track.passed_step = max(track.passed_step, step)

    def _is_known(self, step: int, worker: str) -> bool:
        tracker = self._tracker
        track = tracker.workers.get(worker)
        if track is None:
            return False
        is_passed = not track.unsequenced and step <= track.passed_step
        return is_passed or step in track.pending or (step, worker) in tracker.unreadable

    @property
    def _is_unsequenced(self) -> bool:
        return any(track.unsequenced for track in self._tracker.workers.values())
