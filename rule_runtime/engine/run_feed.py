"""The files of one run on their way to the rule: noted, loaded, shown step by step."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from hook_layer.format.paths import index_key
from hook_layer.storage.base import Store
from rule_runtime.engine.budget import Budget
from rule_runtime.engine.evaluator import Evaluation
from rule_runtime.engine.file_order import FileName, by_step, chunks, name_of
from rule_runtime.engine.outcome import Evidence, RuleStatus
from rule_runtime.engine.progress import ProgressTracker, Sighting
from rule_runtime.engine.rule import Rule
from rule_runtime.engine.run_progress import Replaying
from rule_runtime.engine.state import MEMORY_VERSION, EvaluationState
from rule_runtime.trial.step_index import StepFile, iter_step_files
from rule_runtime.trial.step_view import StepReader

__all__ = ["RunFeed"]

_logger: Final = logging.getLogger(__name__)

_KEPT_BYTES: Final = 32 << 20
"""Length of the files kept, parsed, until they are fed; others are read a second time."""


class RunFeed:
    """Feeds the files of one run to one rule; the mutable twin of a state.

    Args:
        store: The trial's root.
        rule: The rule.
        run: RunId of the run; None for files that carry none.
        reader: Makes the views of steps.
        state: The state to go on from.
        budget: How long the call may go on.

    Attributes:
        tracker: Which files were seen and fed.
        evaluation: The rule's answers.
        budget: How long the call may go on.
        has_fed: True once a step was fed.
    """

    def __init__(
        self,
        store: Store,
        rule: Rule,
        run: str | None,
        reader: StepReader,
        state: EvaluationState,
        *,
        budget: Budget,
    ) -> None:
        self._store = store
        self._rule = rule
        self._run = run
        self._reader = reader
        self._state = state
        self.budget = budget
        self.tracker = ProgressTracker(state.progress)
        self.evaluation = Evaluation.resume(rule, state)
        self.has_fed = False
        self._first_evidence: Evidence | None = None
        replaying = state.progress.replaying
        if replaying is not None and not replaying.found:
            self._first_evidence, self.evaluation.evidence = state.evidence, None
        self._last_problem = state.counts.last_problem
        self._given_up = state.counts.given_up
        self._kept: dict[FileName, StepFile] = {}
        self._kept_bytes = 0
        if state.memory_version != MEMORY_VERSION and state.progress.fed_step >= 0:
            self.begin_replay()

    def take_in(self, files: Iterable[StepFile]) -> bool:
        """Note files; return True if one of them can change anything.

        Args:
            files: Index files, of this run or others, in any order.
        """
        is_news = False
        for file in sorted(files, key=name_of):
            sighting = self._note(file)
            if sighting is Sighting.NEW:
                self._keep(file)
            may_be_late = file.index is not None and file.index.sequence is None
            is_news = is_news or sighting is not Sighting.DUPLICATE or may_be_late
        self.tracker.settle()
        return is_news

    def load(self, keys: Iterable[str]) -> bool:
        """Read index files and note them; return True if one of them was not known.

        Args:
            keys: Their keys.
        """
        is_news = False
        for file in iter_step_files(self._store, keys):
            sighting = self._note(file)
            if sighting is Sighting.NEW:
                self._keep(file)
            is_news = is_news or sighting is not Sighting.DUPLICATE
        self.tracker.settle()
        return is_news

    def look_up_num_workers(self) -> None:
        """Find out how many workers write, if the index files did not tell."""
        if self.tracker.num_workers is None:
            self.tracker.num_workers = self._reader.num_workers()

    def feed_steps(self, steps: Sequence[int]) -> None:
        """Feed steps whose files were noted, as many as the call has time for.

        Args:
            steps: The steps in order.
        """
        names = [(step, worker) for step in steps for worker in self.tracker.writers(step)]
        found = by_step(self._get(names))
        present = next(found, None)
        for step in steps:
            if self.has_failed:
                return
            files: Iterable[StepFile] = ()
            if present is not None and present[0] == step:
                files = list(present[1])
                present = next(found, None)
            if not self._evaluate(step, files):
                self.evaluation.skip(f"the index files of step {step} are gone")
            self._mark_fed(step)
            if not self.budget.goes_on():
                return

    def feed_files(self, names: Sequence[FileName]) -> int | None:
        """Note files and feed their steps as they are, whatever may be missing.

        Args:
            names: The files in step order; those of a step together.

        Returns:
            The last step for which there was time; None if there was for all.
        """
        for step, of_step in by_step(self._get(names)):
            if self.has_failed:
                return None
            files = list(of_step)
            self.take_in(files)
            if self._evaluate(step, files):
                self._mark_fed(step)
            self._forget(step)
            if not self.budget.goes_on():
                return step
        return None

    def begin_replay(self) -> None:
        """Judge the run again from its beginning; a finding is added, never withdrawn."""
        self._first_evidence = self.evaluation.evidence or self._first_evidence
        self.evaluation = Evaluation.fresh(self._rule)
        self.tracker.replayed = self.tracker.late
        self.tracker.replaying = Replaying()

    def replay(self, names: Iterable[FileName]) -> bool:
        """Go on with a replay; return True once it is through.

        What it is the first to see came late, and needs no further replay.

        Args:
            names: The files that it has not judged yet, in step order.
        """
        for chunk in chunks(names):
            for step, of_step in by_step(self._get(chunk)):
                files = list(of_step)
                late = self.tracker.late
                for file in files:
                    self._note(file)
                self.tracker.replayed += self.tracker.late - late
                self._evaluate(step, files)
                is_found = self.evaluation.evidence is not None
                self.tracker.replaying = Replaying(step, is_found)
                if self.has_failed:
                    return self._end_replay()
                if not self.budget.goes_on():
                    return False
        return self._end_replay()

    def _end_replay(self) -> bool:
        if self.evaluation.evidence is None:
            self.evaluation.evidence = self._first_evidence
        self.tracker.replaying = None
        return True

    def give_up(self) -> None:
        """Wait no longer for the workers that the first step waits for, and note who they are."""
        waiting = self.tracker.waiting
        if waiting is None:
            return
        count, who = self.tracker.give_up()
        self._given_up += count
        self._last_problem = f"step {waiting.step} was not waited for any longer, given up: {who}"
        _logger.warning("%s", self._last_problem)

    @property
    def has_given_up(self) -> bool:
        """True if a step was ever fed without waiting for all workers."""
        return self._given_up > 0 or self.tracker.unseen_given_up

    def state(self) -> EvaluationState:
        """Return the state as it is now, its status raised to a finding if there is one."""
        evaluation = self.evaluation
        counts = evaluation.counts(len(self.tracker.unreadable), self._last_problem)
        evidence = evaluation.evidence
        if self.tracker.replaying is not None and evidence is None:
            evidence = self._first_evidence
        state = replace(
            self._state,
            progress=self.tracker.to_progress(),
            memory=evaluation.memory,
            evidence=evidence,
            counts=replace(counts, missing=self._state.counts.missing, given_up=self._given_up),
            ended=self._state.ended or self.has_failed,
            memory_version=MEMORY_VERSION,
        )
        if evidence is not None:
            return state.with_status(RuleStatus.ISSUES_FOUND)
        if self.has_failed and not state.status.is_final:
            return state.with_status(RuleStatus.ERROR)
        return state

    @property
    def has_failed(self) -> bool:
        """True once the rule failed: no further step is shown to it."""
        return bool(self.evaluation.failure)

    def _note(self, file: StepFile) -> Sighting:
        if file.index is None:
            sighting = self.tracker.note_unreadable(file.worker, file.step)
            if sighting is Sighting.NEW:
                is_last = (file.step, file.worker) == max(self.tracker.unreadable)
                self._last_problem = (file.problem or "") if is_last else self._last_problem
            return sighting
        if not self._belongs(file):
            return Sighting.DUPLICATE
        if file.index.workers is not None:
            known = self.tracker.num_workers or 0
            self.tracker.num_workers = max(known, file.index.workers)
        skipped = file.index.skipped or 0
        return self.tracker.note(file.worker, file.step, file.index.sequence, skipped)

    def _belongs(self, file: StepFile) -> bool:
        return file.index is not None and file.index.run == self._run

    def _get(self, names: Sequence[FileName]) -> Iterator[StepFile]:
        """Yield files by name in step order, reading only those that are not at hand."""
        at_hand = sorted((self._kept[name] for name in names if name in self._kept), key=name_of)
        missing = [index_key(*name) for name in names if name not in self._kept]
        return heapq.merge(at_hand, iter_step_files(self._store, missing), key=name_of)

    def _keep(self, file: StepFile) -> None:
        if self._kept_bytes + file.num_bytes <= _KEPT_BYTES:
            self._kept[name_of(file)] = file
            self._kept_bytes += file.num_bytes

    def _mark_fed(self, step: int) -> None:
        self.tracker.mark_fed(step)
        self._forget(step)
        self.has_fed = True

    def _forget(self, step: int) -> None:
        for name in [name for name in self._kept if name[0] <= step]:
            self._kept_bytes -= self._kept.pop(name).num_bytes

    def _evaluate(self, step: int, files: Iterable[StepFile]) -> bool:
        """Feed one step; return False if none of its files belongs to the run."""
        own = [file for file in files if self._belongs(file)]
        if own:
            expected = self.tracker.num_workers or len(self.tracker.workers)
            self.evaluation.feed(self._reader.view(step, own, num_workers=expected))
        return bool(own)
