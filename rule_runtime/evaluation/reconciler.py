"""Bringing a rule's state up to date with the files of a run.

`Reconciler.advance(state, files)` is a function of the state and the stored files: an event only
says "look again". Lost, doubled and reordered events change nothing in the result, because a step
is fed once, in step order, and only when nothing can be missing from it (`progress.py` says how
that is known). If an error is raised, nothing has changed, and the same call may be made again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby, takewhile
from typing import Final

from hook_layer.storage.base import Store
from rule_runtime.evaluation.last_files import LastFiles
from rule_runtime.evaluation.outcome import RuleStatus
from rule_runtime.evaluation.rule import Rule
from rule_runtime.evaluation.run_feed import FILES_AT_ONCE, FileName, RunFeed
from rule_runtime.evaluation.state import EvaluationState
from rule_runtime.trial.step_index import StepFile, list_index_files
from rule_runtime.trial.step_view import StepReader

__all__ = ["Reconciler"]

_RANK: Final = {
    RuleStatus.ERROR: 0,
    RuleStatus.NO_ISSUES_FOUND: 1,
    RuleStatus.ISSUES_FOUND: 2,
}


class Reconciler:
    """Feeds the steps of one run to one rule.

    Args:
        store: The trial's root.
        rule: The rule.
        run: RunId of the run; None for the files of the original client, which carry none. Index
            files of other runs that lie in the same folder are ignored.
    """

    def __init__(self, store: Store, rule: Rule, run: str | None) -> None:
        self._store = store
        self._rule = rule
        self._run = run
        self._reader = StepReader(store)

    def advance(
        self,
        state: EvaluationState,
        files: Sequence[StepFile],
        *,
        ended: bool = False,
        last_sequences: Mapping[str, int] | None = None,
    ) -> EvaluationState:
        """Return the state after these files, and any that they show to be missing, were taken in.

        Args:
            state: The state when the run was last looked at.
            files: Index files that have come since, in any order; known ones do no harm.
            ended: True once the end marker of this run was seen. Everything that is left is fed,
                also steps that some worker did not write, and the verdict is drawn. May be
                repeated.
            last_sequences: Number of the last index file of each worker that the end marker names,
                if it does. Once that many were seen, nothing more is looked for.

        Raises:
            StorageError: If the storage fails otherwise than by a missing object.
        """
        if state.counts.failure:
            return state  # the rule is broken: nothing of this run is shown to it any more
        feed = RunFeed(self._store, self._rule, self._run, self._reader, state)
        session = _Session(self._store, feed, last_sequences or {})
        is_news = feed.take_in(files)
        if state.ended:
            return session.finish() if is_news else state
        session.feed_what_is_ready(has_news=is_news)
        return session.finish() if ended and not feed.has_failed else feed.state()


class _Session:
    """One call of `advance`: decides what is looked for and what is fed.

    Args:
        store: The trial's root.
        feed: The run's way to the rule.
        last_sequences: What the end marker says; empty without one.
    """

    def __init__(self, store: Store, feed: RunFeed, last_sequences: Mapping[str, int]) -> None:
        self._store = store
        self._feed = feed
        self._tracker = feed.tracker
        self._last = LastFiles(feed.tracker, last_sequences)

    # ------------------------------------------------------------------ feeding while the job runs

    def feed_what_is_ready(self, *, has_news: bool) -> None:
        """Repair what the files show to be missing, and feed every step that is complete."""
        if has_news:
            self._feed.look_up_num_workers()
        while True:
            if has_news:
                self._repair()
            steps = self._tracker.ready_steps()
            self._feed.feed_steps(steps)
            # Only what had been forgotten for want of room can be found by looking once more.
            forgotten = any(track.forgotten for track in self._tracker.workers.values())
            if not (steps and forgotten) or self._feed.has_failed:
                return

    def _repair(self) -> None:
        """List the index if, and only if, the files seen do not tell which others exist."""
        tracker = self._tracker
        tracks = tracker.workers.values()
        unsequenced = any(0 in track.pending.values() for track in tracks)
        holes = [track for track in tracks if track.has_new_hole]
        forgotten = any(track.forgotten for track in tracks)
        if tracker.room <= 0 or not (
            unsequenced or holes or forgotten or (tracks and not tracker.names_known)
        ):
            return
        is_bounded = not (unsequenced or forgotten)
        last = max(tracker.pending_steps(), default=tracker.fed_step) if is_bounded else None
        self._list_between(last)

    def _list_between(self, last: int | None) -> None:
        """Take in the files that a listing shows behind what was fed, up to step `last`."""
        tracker = self._tracker
        keys: list[str] = []
        shown: dict[str, int] = {}
        is_whole = True
        for key, name in list_index_files(self._store, after_step=tracker.fed_step):
            if last is not None and name.step > last:
                break
            if self._is_known(name.step, name.worker):
                shown[name.worker] = name.step
                continue
            if len(keys) >= tracker.room:
                is_whole = False
                break
            keys.append(key)
            shown[name.worker] = name.step
        for track in tracker.workers.values():
            track.listed = max(track.listed, track.highest)
            track.forgotten = not is_whole or (track.forgotten and last is not None)
        self._feed.load(keys)
        for worker, step in shown.items():
            track_or_none = tracker.workers.get(worker)
            if track_or_none is not None and track_or_none.unsequenced:
                track_or_none.passed_step = max(track_or_none.passed_step, step)

    def _is_known(self, step: int, worker: str) -> bool:
        tracker = self._tracker
        track = tracker.workers.get(worker)
        if track is None:
            return False
        is_passed = not track.unsequenced and step <= track.passed_step
        return is_passed or step in track.pending or (step, worker) in tracker.unreadable

    # ------------------------------------------------------------------ the end

    def finish(self) -> EvaluationState:
        """Feed all that is left, replay the run if files came late, and draw the verdict."""
        tracker = self._tracker
        self._feed.look_up_num_workers()
        if self._last.are_seen:
            self._feed.feed_steps(tracker.pending_steps())
        else:
            self._feed_listed()
        for track in tracker.workers.values():
            track.pending.clear()
            track.forgotten = False
        if tracker.late > tracker.replayed and not self._feed.has_failed:
            self._replay()
            tracker.replayed = tracker.late
        state = self._feed.state()
        counts = replace(state.counts, missing=self._last.num_lost)
        return self._conclude(replace(state, counts=counts))

    def _feed_listed(self) -> None:
        """Feed what a listing shows, in order and as it is; memory is bounded however much it is.

        It ends where nothing of the run can follow, if the end marker tells that. As many files as
        are missing are read first, then twice as many, and so on: among them may be other runs'.
        """
        tracker, last = self._tracker, self._last
        is_unknown = self._is_unsequenced or not tracker.workers
        shown: Counter[str] = Counter()
        chunk: list[FileName] = []
        size = min(last.num_awaited or FILES_AT_ONCE, FILES_AT_ONCE)
        listed = list_index_files(self._store, after_step=-1 if is_unknown else tracker.fed_step)
        for step, of_step in groupby(listed, key=lambda item: item[1].step):
            workers = [name.worker for _, name in of_step]
            shown.update(workers)
            if step > tracker.fed_step:
                chunk += [(step, worker) for worker in workers if last.may_be_own(step, worker)]
            if len(chunk) >= size:
                self._feed.feed_files(chunk)
                chunk, size = [], min(2 * size, FILES_AT_ONCE)
            if last.are_before(step) or self._feed.has_failed:
                break
        self._feed.feed_files(chunk)
        if self._is_unsequenced:
            tracker.count_late(shown)

    @property
    def _is_unsequenced(self) -> bool:
        return any(track.unsequenced for track in self._tracker.workers.values())

    def _replay(self) -> None:
        names = ((name.step, name.worker) for _, name in list_index_files(self._store))
        # What was fed by now is all there is; a file of a later step will be news.
        self._feed.replay(takewhile(lambda name: name[0] <= self._tracker.fed_step, names))

    def _conclude(self, state: EvaluationState) -> EvaluationState:
        if self._feed.evaluation.evidence is not None:
            verdict = RuleStatus.ISSUES_FOUND
        elif self._feed.evaluation.evaluated and not self._feed.has_failed:
            verdict = RuleStatus.NO_ISSUES_FOUND
        else:
            verdict = RuleStatus.ERROR
        if _RANK.get(state.status, -1) < _RANK[verdict]:
            state = state.with_status(verdict)
        return replace(state, ended=True)
