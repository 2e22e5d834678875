"""The end of a run: the rest is fed, late files are judged by a replay, the verdict is drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby, takewhile
from typing import Final

from hook_layer.storage.base import Store
from rule_runtime.engine.file_order import FILES_AT_ONCE, FileName
from rule_runtime.engine.last_files import LastFiles
from rule_runtime.engine.outcome import RuleStatus
from rule_runtime.engine.run_feed import RunFeed
from rule_runtime.engine.run_progress import Finishing
from rule_runtime.engine.state import EvaluationState
from rule_runtime.trial.step_index import list_index_files

__all__ = ["RunEnd"]

_NAMES_AT_ONCE: Final = 10_000
"""Files that are listed, and not read, between two questions whether there is time for more."""

_RANK: Final = {
    RuleStatus.ERROR: 0,
    RuleStatus.NO_ISSUES_FOUND: 1,
    RuleStatus.ISSUES_FOUND: 2,
}


class RunEnd:
    """Finishes a run, in as many calls as it takes.

    Args:
        store: The trial's root.
        feed: The run's way to the rule.
        last_sequences: What the end marker says; empty without one.
    """

    def __init__(self, store: Store, feed: RunFeed, last_sequences: Mapping[str, int]) -> None:
        self._store = store
        self._feed = feed
        self._tracker = feed.tracker
        under_way = feed.tracker.finishing or Finishing()
        self._sequences = last_sequences or under_way.last_sequences
        self._last = LastFiles(feed.tracker, self._sequences)
        self._after = under_way.after
        self._shown = Counter(under_way.shown)
        self._is_all_replayed = False

    def note_news(self) -> None:
        """List again what was listed: a file has come that may lie where nothing was."""
        self._after = None
        self._shown.clear()

    def put_off(self) -> EvaluationState:
        """Return the state of a run that must be finished by a later call.

        It counts as not ended, also if it was before: somebody has to look at it again.
        """
        self._tracker.finishing = Finishing(self._sequences, self._after, dict(self._shown))
        return replace(self._feed.state(), ended=False)

    def catch_up(self) -> bool:
        """Go on with a replay that is under way; return False if there was no time to end it."""
        return self._tracker.replaying is None or self._replay()

    def finish(self) -> EvaluationState:
        """Feed all that is left, replay the run if files came late, and draw the verdict."""
        self._feed.look_up_num_workers()
        while True:
            if self._tracker.replaying is None:
                if not self._feed_rest():
                    return self.put_off()
                if not self._needs_replay:
                    return self._conclude()
                self._feed.begin_replay()
            if not self._replay():
                return self.put_off()
            self._is_all_replayed = True

    @property
    def _needs_replay(self) -> bool:
        """True if files came after their step was fed, or may have come unnoticed."""
        tracker = self._tracker
        if self._feed.has_failed:
            return False
        if tracker.late > tracker.replayed:
            return True
        # Only where somebody was not waited for can there be a file of a step that was fed.
        return (
            self._feed.has_given_up
            and not self._is_all_replayed
            and any(count > tracker.num_seen(name) for name, count in self._shown.items())
        )

    def _feed_rest(self) -> bool:
        """Feed what is left; return False if there was no time for all of it."""
        if self._last.are_seen:
            self._feed.feed_steps(self._tracker.pending_steps())
            if self._tracker.pending_steps() and not self._feed.has_failed:
                return False
        elif not self._feed_listed():
            return False
        for track in self._tracker.workers.values():
            track.pending.clear()
            track.forgotten = False
        self._tracker.waiting = None
        self._tracker.scan = None
        return True

    def _feed_listed(self) -> bool:
        """Feed what a listing shows, in order and as it is; memory is bounded however much it is.

        It ends where nothing of the run can follow, if the end marker tells that. As many files as
        are missing are read first, then twice as many, and so on: among them may be other runs'.
        """
        tracker, last = self._tracker, self._last
        if self._after is None:
            is_all = self._is_unsequenced or self._feed.has_given_up
            self._after = -1 if is_all else tracker.fed_step
        listed: list[tuple[int, list[str]]] = []
        names: list[FileName] = []
        num_listed = 0
        size = min(last.num_awaited or FILES_AT_ONCE, FILES_AT_ONCE)
        index = list_index_files(self._store, after_step=self._after)
        for step, of_step in groupby(index, key=lambda item: item[1].step):
            workers = [name.worker for _, name in of_step]
            listed.append((step, workers))
            num_listed += len(workers)
            if step > tracker.fed_step:
                names += [(step, worker) for worker in workers if last.may_be_own(step, worker)]
            if len(names) >= size or num_listed >= _NAMES_AT_ONCE:
                if not self._feed_chunk(listed, names):
                    return False
                listed, names, num_listed = [], [], 0
                size = min(2 * size, FILES_AT_ONCE)
            is_last = step >= tracker.fed_step and last.are_before(step)
            if is_last or self._feed.has_failed:
                break
        if listed and not self._feed_chunk(listed, names):
            return False
        if self._is_unsequenced:
            tracker.count_late(self._shown)
        return True

    def _feed_chunk(self, listed: list[tuple[int, list[str]]], names: list[FileName]) -> bool:
        """Feed some files; return False if the rest is for another call."""
        stopped_at = self._feed.feed_files(names)
        self._after = listed[-1][0] if stopped_at is None else stopped_at
        for step, workers in listed:
            if step <= self._after:
                self._shown.update(workers)
        return self._feed.has_failed or self._feed.budget.goes_on()

    @property
    def _is_unsequenced(self) -> bool:
        return any(track.unsequenced for track in self._tracker.workers.values())

    def _replay(self) -> bool:
        replaying = self._tracker.replaying
        after = -1 if replaying is None else replaying.after
        listed = list_index_files(self._store, after_step=after)
        names = ((name.step, name.worker) for _, name in listed)
        # What was fed by now is all there is; a file of a later step will be news.
        return self._feed.replay(takewhile(lambda name: name[0] <= self._tracker.fed_step, names))

    def _conclude(self) -> EvaluationState:
        self._tracker.finishing = None
        state = self._feed.state()
        state = replace(state, counts=replace(state.counts, missing=self._last.num_lost))
        if self._feed.evaluation.evidence is not None:
            verdict = RuleStatus.ISSUES_FOUND
        elif self._feed.evaluation.evaluated and not self._feed.has_failed:
            verdict = RuleStatus.NO_ISSUES_FOUND
        else:
            verdict = RuleStatus.ERROR
        if _RANK.get(state.status, -1) < _RANK[verdict]:
            state = state.with_status(verdict)
        return replace(state, ended=True)
