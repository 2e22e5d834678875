"""Ends a run: feeds the rest, replays the run after late files, and determines the verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from rule_runtime.engine.expected_files import ExpectedFiles
from rule_runtime.engine.lost_files import listed_parts
from rule_runtime.engine.outcome import RuleStatus
from rule_runtime.engine.run_feed import FILES_AT_ONCE, RunFeed
from rule_runtime.engine.state import EvaluationState
from rule_runtime.engine.unfinished_work import Finishing

__all__ = ["RunEnd"]

_RANK: Final = {RuleStatus.ERROR: 0, RuleStatus.NO_ISSUES_FOUND: 1, RuleStatus.ISSUES_FOUND: 2}


class RunEnd:
    """Ends a run, in one or more calls.

    `last_sequences` has the number of each worker's last file, from the end marker; may be empty.
    `has_changes` is True if a new file was seen. It may belong to a listed step, so everything is
    listed again.
    """

    def __init__(
        self, feed: RunFeed, last_sequences: Mapping[str, int], *, has_changes: bool
    ) -> None:
        self._feed = feed
        self._progress = feed.progress
        unfinished = feed.progress.finishing or Finishing()
        self._sequences = last_sequences or unfinished.last_sequences
        self._expected = ExpectedFiles(feed.progress, self._sequences)
        self._after = None if has_changes else unfinished.after
        self._shown = Counter({} if has_changes else unfinished.shown)
        self._is_all_replayed = False

    def suspend(self) -> EvaluationState:
        """Return the state of a run whose end a later call continues; it is not ended yet."""
        self._progress.finishing = Finishing(self._sequences, self._after, dict(self._shown))
        return replace(self._feed.state(), ended=False)

    def finish(self) -> EvaluationState:
        """Feed the rest, replay the run after late files, and determine the verdict."""
        self._feed.read_num_workers()
        while True:
            if self._progress.replaying is None:
                if not self._feed_rest():
                    return self.suspend()
                if not self._needs_replay:
                    return self._conclude()
                self._feed.begin_replay()
            if not self.replay():
                return self.suspend()
            self._is_all_replayed = True

    @property
    def _needs_replay(self) -> bool:
        """True if files came after their step was fed, or may have come without an event."""
        progress = self._progress
        if self._feed.has_failed:
            return False
        if progress.late > progress.replayed:
            return True
        # Only a step that waited for no worker can have been fed without one of its files.
        return (
            self._feed.has_given_up
            and not self._is_all_replayed
            and any(count > progress.num_seen(name) for name, count in self._shown.items())
        )

    def _feed_rest(self) -> bool:
        """Feed the rest; return False if the time ran out."""
        progress = self._progress
        if self._expected.num_missing != 0 and not self._feed_listed():
            return False
        if not self._feed.feed_steps(progress.pending_steps()):
            return False
        for worker in progress.workers.values():
            worker.pending.clear()
            worker.forgotten = False
        progress.waiting = None
        progress.scan = None
        return True

    def _feed_listed(self) -> bool:
        """Feed the listed files in step order, even if others of their steps are missing.

        The listing ends when no file of the run can follow. Memory is bounded.
        """
        progress, feed, expected = self._progress, self._feed, self._expected
        if self._after is None:
            counts_all = progress.has_unnumbered or feed.has_given_up
            self._after = -1 if counts_all else progress.fed_step
        # Files of other runs may follow, so the first read covers only as many files as are
        # missing.
        size = min(expected.num_missing or FILES_AT_ONCE, FILES_AT_ONCE)
        parts = listed_parts(
            feed.store,
            self._after,
            is_wanted=self._is_wanted,
            size=lambda: size,
            is_over=lambda step: step > progress.fed_step and expected.end_before(step),
        )
        for names in parts:
            feed.load(name for name in names if self._is_wanted(*name))
            last = names[-1][0]
            is_fed = feed.feed_steps([step for step in progress.pending_steps() if step <= last])
            self._after = last if is_fed else max(self._after, progress.fed_step)
            self._shown.update(worker for step, worker in names if step <= self._after)
            if feed.has_failed:
                break
            if not is_fed or not feed.budget.allows_more():
                return False
            size = min(2 * size, FILES_AT_ONCE)
        if progress.has_unnumbered:
            progress.count_late(self._shown)
        return True

    def _is_wanted(self, step: int, worker: str) -> bool:
        return step > self._progress.fed_step and self._expected.may_have(step, worker)

    def replay(self) -> bool:
        """Begin or continue a replay; return False if the time ran out."""
        feed, progress = self._feed, self._progress
        parts = listed_parts(
            feed.store,
            -1 if progress.replaying is None else progress.replaying.after,
            is_wanted=lambda *_: True,
            size=lambda: FILES_AT_ONCE,
            is_over=lambda step: step > progress.fed_step,  # a later file counts as new
        )
        for names in parts:
            if not feed.replay(names):
                return False
            if feed.has_failed:
                break
        feed.end_replay()
        return True

    def _conclude(self) -> EvaluationState:
        self._progress.finishing = None
        state = self._feed.state()
        state = replace(state, counts=replace(state.counts, missing=self._expected.num_lost))
        if state.evidence is not None:
            verdict = RuleStatus.ISSUES_FOUND
        elif state.counts.evaluated and not self._feed.has_failed:
            verdict = RuleStatus.NO_ISSUES_FOUND
        else:
            verdict = RuleStatus.ERROR
        if _RANK.get(state.status, -1) < _RANK[verdict]:
            state = state.with_status(verdict)
        return replace(state, ended=True)
