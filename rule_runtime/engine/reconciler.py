"""Bringing a rule's state up to date with the files of a run.

`Reconciler.advance(state, files)` is a function of the state, the stored files and the time: an
event only says "look again". Lost, doubled and reordered events change nothing in the result,
because a step is fed once, in step order, and only when nothing can be missing from it
(`progress.py` says how that is known), or was waited for in vain. If an error is raised, nothing
has changed, and the same call may be made again. A call that has no time for everything leaves the
rest to the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hook_layer.storage.base import Store
from rule_runtime.engine.budget import Budget
from rule_runtime.engine.progress import Patience
from rule_runtime.engine.repair import Repair
from rule_runtime.engine.rule import Rule
from rule_runtime.engine.run_end import RunEnd
from rule_runtime.engine.run_feed import RunFeed
from rule_runtime.engine.state import EvaluationState
from rule_runtime.trial.step_index import StepFile
from rule_runtime.trial.step_view import StepReader

__all__ = ["Reconciler"]


class Reconciler:
    """Feeds the steps of one run to one rule.

    Args:
        store: The trial's root.
        rule: The rule.
        run: RunId of the run; None for the files of the original client, which carry none. Index
            files of other runs that lie in the same folder are ignored.
        patience: How long a step waits for a worker that does not go on.

    Attributes:
        has_more: True if the last call left known work undone without time: the same call with
            no files continues with it.
    """

    def __init__(
        self,
        store: Store,
        rule: Rule,
        run: str | None,
        *,
        patience: Patience | None = None,
    ) -> None:
        self._store = store
        self._rule = rule
        self._run = run
        self._patience = patience or Patience()
        self._reader = StepReader(store)
        self.has_more = False

    def advance(
        self,
        state: EvaluationState,
        files: Sequence[StepFile],
        *,
        ended: bool = False,
        last_sequences: Mapping[str, int] | None = None,
        now: float | None = None,
        may_go_on: Callable[[], bool] | None = None,
        look_again: bool = False,
    ) -> EvaluationState:
        """Return the state after these files, and any that they show to be missing, were taken in.

        Args:
            state: The state when the run was last looked at.
            files: Index files that have come since, in any order; known ones do no harm.
            ended: True once the end marker of this run was seen. Everything that is left is fed,
                also steps that some worker did not write, and the verdict is drawn. May be
                repeated; a state in which this was begun continues with it without being told.
            last_sequences: Number of the last index file of each worker that the end marker names,
                if it does. Once that many were seen, nothing more is looked for.
            now: Seconds since the epoch; None to wait for workers however long it takes.
            may_go_on: Asked after each step, and after each part of a listing; when it answers
                False the call ends there. None for as long as it takes.
            look_again: True to list the index though the files do not show that one is missing.

        Raises:
            StorageError: If the storage fails otherwise than by a missing object.
        """
        self.has_more = False
        if state.counts.failure:
            return state  # the rule is broken: nothing of this run is shown to it any more
        budget = Budget(may_go_on)
        feed = RunFeed(self._store, self._rule, self._run, self._reader, state, budget=budget)
        end = RunEnd(self._store, feed, last_sequences or {})
        is_finishing = state.progress.finishing is not None
        is_news = feed.take_in(files)
        if is_news:
            end.note_news()
        if state.ended and not (is_news or is_finishing):
            return state
        if not (state.ended or is_finishing):
            if not end.catch_up():
                self.has_more = True
                return end.put_off() if ended else feed.state()
            asked_at = None if ended else now  # at the end nobody is waited for
            self._follow(feed, is_news=is_news, now=asked_at, look_again=look_again)
            if feed.has_failed or not ended:
                self.has_more = self._is_work_left(feed, now)
                return feed.state()
            if budget.is_used_up:
                self.has_more = True
                return end.put_off()
        after = end.finish()
        self.has_more = after.progress.finishing is not None
        return after

    def _follow(self, feed: RunFeed, *, is_news: bool, now: float | None, look_again: bool) -> None:
        """Feed what is ready while the run continues, and give up whom it waited for in vain."""
        repair = Repair(self._store, feed)
        if is_news:
            feed.look_up_num_workers()
        _feed_ready(feed, repair, is_news=is_news)
        if look_again and _may_go_on(feed):
            repair.look(brief=True)
            _feed_ready(feed, repair, is_news=True)
        if now is None or not _may_go_on(feed):
            return
        tracker = feed.tracker
        tracker.note_waiting(now)
        if not tracker.is_overdue(now, self._patience):
            return
        if tracker.waiting is not None and not tracker.waiting.looked:
            tracker.note_look()
            feed.look_up_num_workers()
            repair.look(brief=False)
            _feed_ready(feed, repair, is_news=True)
            tracker.note_waiting(now)
        if _may_go_on(feed) and tracker.is_overdue(now, self._patience):
            feed.give_up()
            _feed_ready(feed, repair, is_news=True)
            tracker.note_waiting(now)

    def _is_work_left(self, feed: RunFeed, now: float | None) -> bool:
        """Return whether a call that ran out of time left anything that needs no further file."""
        tracker = feed.tracker
        if feed.has_failed or not feed.budget.is_used_up:
            return False
        has_room_again = feed.has_fed and tracker.has_forgotten and tracker.room > 0
        if tracker.scan is not None or tracker.ready_steps() or has_room_again:
            return True
        if now is None:
            return False
        tracker.note_waiting(now)
        return tracker.is_overdue(now, self._patience)


def _feed_ready(feed: RunFeed, repair: Repair, *, is_news: bool) -> None:
    """Repair what the files show to be missing, and feed every step that is complete."""
    while True:
        repair.look_if_needed(has_news=is_news)
        steps = feed.tracker.ready_steps()
        feed.feed_steps(steps)
        # Only what had been forgotten without room can be found by looking once more.
        if not (steps and feed.tracker.has_forgotten and _may_go_on(feed)):
            return


def _may_go_on(feed: RunFeed) -> bool:
    return not (feed.has_failed or feed.budget.is_used_up)
