"""Updates the state of a rule from the files of a run.

`Reconciler.advance(state, files)` is a function of the state, the stored files and the time; an
event only triggers a call. Lost, duplicate and reordered events do not change the result. Each step
is fed once, in step order, when `Progress` shows that none of its files is missing, or after a
wait. A call that raises changes nothing and can be repeated. The next call continues a call that
ran out of time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hook_layer.storage.base import Store
from rule_runtime.engine.lost_files import search_lost_files
from rule_runtime.engine.progress import Patience
from rule_runtime.engine.rule import Rule
from rule_runtime.engine.run_end import RunEnd
from rule_runtime.engine.run_feed import Budget, RunFeed
from rule_runtime.engine.state import EvaluationState
from rule_runtime.engine.unfinished_work import Scan
from rule_runtime.trial.step_index import StepFile
from rule_runtime.trial.step_view import StepReader

__all__ = ["Reconciler"]


class Reconciler:
    """Feeds the steps of one run to one rule.

    Args:
        source: The trial's root, or the reader of its steps that several rules share.
        rule: The rule.
        run: RunId of the run; None for the original client, which has none. Files of other runs in
            the same folder are ignored.
        patience: Maximum wait for a worker without files.

    Attributes:
        has_more: True if the last call ran out of time: the same call without files continues it.
    """

    def __init__(
        self,
        source: Store | StepReader,
        rule: Rule,
        run: str | None,
        *,
        patience: Patience | None = None,
    ) -> None:
        self._rule = rule
        self._run = run
        self._patience = patience or Patience()
        self._reader = source if isinstance(source, StepReader) else StepReader(source)
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
        check_again: bool = False,
    ) -> EvaluationState:
        """Return the state after feeding these files and the others that they imply.

        Args:
            state: The state after the last call.
            files: New index files in any order; known ones are ignored.
            ended: True once the end marker of this run was seen. The rest is fed, including
                incomplete steps, and the verdict is determined. It may be repeated; later calls
                continue an unfinished end without it.
            last_sequences: Number of each worker's last index file from the end marker, if given.
                Nothing is listed once these files were seen.
            now: Seconds since the epoch; None to wait for workers forever.
            may_go_on: Called after each step and each part of a listing; False ends the call. None
                for no limit.
            check_again: True to list the index even if no file is known to be missing.
        """
        self.has_more = False
        if state.counts.failure:
            return state  # the rule gets no further step of this run
        feed = RunFeed(self._reader, self._rule, self._run, state, Budget(may_go_on))
        is_finishing = state.progress.finishing is not None
        has_changes = feed.take_in(files)

        def end() -> RunEnd:
            return RunEnd(feed, last_sequences or {}, has_changes=has_changes)

        if state.ended and not (has_changes or is_finishing):
            return state
        if not (state.ended or is_finishing):
            if feed.progress.replaying is not None and not end().replay():
                self.has_more = True
                return end().suspend() if ended else feed.state()
            asked_at = None if ended else now  # at the end no worker is awaited
            self._follow(feed, has_changes=has_changes, now=asked_at, check_again=check_again)
            if not ended or feed.has_failed:
                has_fed = feed.progress.fed_step > state.progress.fed_step
                self.has_more = self._is_work_left(feed, now, has_fed=has_fed)
                return feed.state()
            if feed.budget.is_used_up:
                self.has_more = True
                return end().suspend()
        after = end().finish()
        self.has_more = after.progress.finishing is not None
        return after

    def _follow(
        self, feed: RunFeed, *, has_changes: bool, now: float | None, check_again: bool
    ) -> None:
        """Feed ready steps while the run continues, and give up workers after the wait."""
        progress = feed.progress
        if has_changes:
            feed.read_num_workers()
        _feed_ready(feed, has_changes=has_changes)
        if check_again and feed.may_continue:
            search_lost_files(feed, Scan(progress.fed_step, None, brief=True))
            _feed_ready(feed, has_changes=True)
        if now is None or not feed.may_continue:
            return
        progress.note_waiting(now)
        waiting = progress.waiting
        if waiting is None:
            return
        if not waiting.looked and progress.is_overdue(now, self._patience):
            progress.waiting = waiting._replace(looked=True)
            feed.read_num_workers()
            search_lost_files(feed, Scan(progress.fed_step, None))
            _feed_ready(feed, has_changes=True)
            progress.note_waiting(now)
        if feed.may_continue and progress.is_overdue(now, self._patience):
            feed.give_up()
            _feed_ready(feed, has_changes=True)
            progress.note_waiting(now)

    def _is_work_left(self, feed: RunFeed, now: float | None, *, has_fed: bool) -> bool:
        """Return whether a call that ran out of time can continue without new files."""
        progress = feed.progress
        if not feed.budget.is_used_up or feed.has_failed:
            return False
        has_room_again = has_fed and progress.has_forgotten and progress.room > 0
        if progress.scan is not None or progress.ready_steps() or has_room_again:
            return True
        if now is not None:
            progress.note_waiting(now)
        return now is not None and progress.is_overdue(now, self._patience)


def _feed_ready(feed: RunFeed, *, has_changes: bool) -> None:
    """Search for lost files if needed, and feed every step that is complete."""
    progress = feed.progress
    while True:
        scan = progress.needed_scan(has_changes=has_changes)
        if scan is not None:
            search_lost_files(feed, scan)
        steps = progress.ready_steps()
        feed.feed_steps(steps)
        # Another listing can only find files that were dropped because of the limit.
        if not (steps and progress.has_forgotten and feed.may_continue):
            return
