"""Feeds the index files of one run to one rule, step by step."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import Final

from hook_layer.format.paths import index_key
from rule_runtime.engine.counts import Counts
from rule_runtime.engine.evaluator import Evaluation
from rule_runtime.engine.evidence import Evidence
from rule_runtime.engine.outcome import RuleStatus
from rule_runtime.engine.rule import Rule
from rule_runtime.engine.state import MEMORY_VERSION, EvaluationState
from rule_runtime.engine.unfinished_work import Replaying
from rule_runtime.trial.step_index import StepFile, iter_step_files
from rule_runtime.trial.step_view import StepReader

__all__ = ["FILES_AT_ONCE", "Budget", "FileName", "RunFeed"]

_logger: Final = logging.getLogger(__name__)

FILES_AT_ONCE: Final = 256
"""Number of index files that are read together."""
_KEPT_BYTES: Final = 32 << 20
"""Size of parsed files that are kept until they are fed; others are read twice."""

FileName = tuple[int, str]
"""Step and worker, which identify an index file."""

_name_of: Final = attrgetter("step", "worker")
_step_of: Final = attrgetter("step")


@dataclass
class Budget:
    """Limits the time of one call; every call completes at least one piece of work.

    Attributes:
        may_continue: Called after each piece of work; False ends the call. None for no limit.
        is_used_up: True once the answer was False.
    """

    may_continue: Callable[[], bool] | None
    is_used_up: bool = False

    def allows_more(self) -> bool:
        """Return whether another piece of work may begin."""
        if not self.is_used_up and self.may_continue is not None:
            self.is_used_up = not self.may_continue()
        return not self.is_used_up


class RunFeed:
    """Feeds the files of one run to one rule, starting from a state.

    The RunId of the run is None for files without one.

    Attributes:
        store: The trial's root.
        progress: Files that were seen and fed.
        evaluation: The rule's memory and outcomes.
        budget: Time limit of the call.
    """

    def __init__(
        self,
        reader: StepReader,
        rule: Rule,
        run: str | None,
        state: EvaluationState,
        budget: Budget,
    ) -> None:
        self.store = reader.store
        self._rule = rule
        self._run = run
        self._reader = reader
        self._state = state
        self.budget = budget
        self.progress = state.progress.copy()
        self.evaluation = Evaluation(rule, state)
        self._first_evidence: Evidence | None = None
        replaying = state.progress.replaying
        if replaying is not None and not replaying.found:
            self._first_evidence, self.evaluation.evidence = state.evidence, None
        self._kept: dict[FileName, StepFile] = {}
        self._kept_bytes = 0
        if state.memory_version != MEMORY_VERSION and state.progress.fed_step >= 0:
            self.begin_replay()

    def take_in(self, files: Sequence[StepFile]) -> bool:
        """Record files of any run, in any order; return True if one can change the result."""
        has_changes = self._record(sorted(files, key=_name_of))
        self.progress.forget_surplus()
        # A seen one without a number may be late: only the count shows it.
        return has_changes or any(each.index and each.index.sequence is None for each in files)

    def load(self, names: Iterable[FileName]) -> bool:
        """Read index files and record them; return True if one of them was unknown."""
        return self._record(iter_step_files(self.store, [index_key(*name) for name in names]))

    def read_num_workers(self) -> None:
        """Look up the number of writing workers if no index file stated it."""
        if self.progress.num_workers is None:
            self.progress.num_workers = self._reader.num_workers()

    def feed_steps(self, steps: Sequence[int]) -> bool:
        """Feed steps with recorded files, in order; return False if the time ran out."""
        names = [(step, worker) for step in steps for worker in self.progress.writers(step)]
        found = groupby(self._get(names), key=_step_of)
        present = next(found, None)
        for step in steps:
            if self.has_failed:
                break
            files: Iterable[StepFile] = ()
            if present is not None and present[0] == step:
                files = list(present[1])
                present = next(found, None)
            if not self._evaluate(step, files):
                self.evaluation.skip(f"the index files of step {step} were deleted or replaced")
            self._mark_fed(step)
            if not self.budget.allows_more():
                return self.has_failed or step == steps[-1]
        return True

    def begin_replay(self) -> None:
        """Start to evaluate the run from its first step again; a finding is never withdrawn."""
        self._first_evidence = self.evaluation.evidence or self._first_evidence
        counts = self.evaluation.counts
        self.evaluation = Evaluation.fresh(self._rule)
        self.evaluation.counts = Counts(
            last_problem=counts.last_problem, missing=counts.missing, given_up=counts.given_up
        )
        self.progress.replayed = self.progress.late
        self.progress.replaying = Replaying()

    def replay(self, names: Sequence[FileName]) -> bool:
        """Evaluate listed files again, in step order; return False if the time ran out."""
        for step, of_step in groupby(self._get(names), key=_step_of):
            files = list(of_step)
            late = self.progress.late
            for file in files:
                self._note(file)
            # Late files that the replay itself discovers need no further replay.
            self.progress.replayed += self.progress.late - late
            self._evaluate(step, files)
            is_found = self.evaluation.evidence is not None
            self.progress.replaying = Replaying(step, is_found)
            if not self.has_failed and not self.budget.allows_more():
                return False
        return True

    def end_replay(self) -> None:
        """End a replay; the first finding stays if the replay found nothing."""
        if self.evaluation.evidence is None:
            self.evaluation.evidence = self._first_evidence
        self.progress.replaying = None

    def give_up(self) -> None:
        """Stop waiting for the workers of the first waiting step, and record them."""
        waiting = self.progress.waiting
        if waiting is None:
            return
        count, who = self.progress.give_up()
        problem = f"step {waiting.step} is evaluated without {who}: no file came in time"
        counts = self.evaluation.counts
        self.evaluation.counts = replace(
            counts, last_problem=problem, given_up=counts.given_up + count
        )
        _logger.warning("%s", problem)

    @property
    def has_given_up(self) -> bool:
        """True if a step was ever fed without waiting for all workers."""
        return self.evaluation.counts.given_up > 0 or self.progress.unseen_given_up

    def state(self) -> EvaluationState:
        """Return the current state, with the status of a finding if there is one."""
        evaluation, has_failed = self.evaluation, self.has_failed
        evidence = evaluation.evidence
        if self.progress.replaying is not None and evidence is None:
            evidence = self._first_evidence
        state = replace(
            self._state,
            progress=self.progress.copy(),
            memory=evaluation.memory,
            evidence=evidence,
            counts=replace(evaluation.counts, unreadable=len(self.progress.unreadable)),
            ended=self._state.ended or has_failed,
            memory_version=MEMORY_VERSION,
        )
        if evidence is not None:
            return state.with_status(RuleStatus.ISSUES_FOUND)
        if has_failed and not state.status.is_final:
            return state.with_status(RuleStatus.ERROR)
        return state

    @property
    def has_failed(self) -> bool:
        """True once the rule failed: it gets no further step."""
        return bool(self.evaluation.counts.failure)

    @property
    def may_continue(self) -> bool:
        """True while the rule works and time is left."""
        return not (self.has_failed or self.budget.is_used_up)

    def _record(self, files: Iterable[StepFile]) -> bool:
        has_changes = False
        for file in files:
            if not self._note(file):
                continue
            has_changes = True
            is_waiting = file.step > self.progress.fed_step
            if is_waiting and self._kept_bytes + file.num_bytes <= _KEPT_BYTES:
                self._kept[_name_of(file)] = file
                self._kept_bytes += file.num_bytes
        self.progress.settle()
        return has_changes

    def _note(self, file: StepFile) -> bool:
        """Record a file; return True if it is an unknown one of this run, or unreadable."""
        progress, index = self.progress, file.index
        if index is None:
            is_new = progress.note_unreadable(file.worker, file.step)
            if is_new and _name_of(file) == max(progress.unreadable):
                counts = replace(self.evaluation.counts, last_problem=file.problem or "")
                self.evaluation.counts = counts
            return is_new
        if index.run != self._run:
            return False
        if index.workers is not None:
            progress.num_workers = max(progress.num_workers or 0, index.workers)
        return progress.note(file.worker, file.step, index.sequence, index.skipped or 0)

    def _get(self, names: Sequence[FileName]) -> Iterator[StepFile]:
        """Yield files by name in step order; reads only files that were not kept."""
        kept = sorted((self._kept[name] for name in names if name in self._kept), key=_name_of)
        missing = [index_key(*name) for name in names if name not in self._kept]
        if not missing:
            return iter(kept)
        return heapq.merge(kept, iter_step_files(self.store, missing), key=_name_of)

    def _mark_fed(self, step: int) -> None:
        self.progress.mark_fed(step)
        for name in [name for name in self._kept if name[0] <= step]:
            self._kept_bytes -= self._kept.pop(name).num_bytes

    def _evaluate(self, step: int, files: Iterable[StepFile]) -> bool:
        """Feed one step; return False if none of its files belongs to the run."""
        own = [file for file in files if file.index and file.index.run == self._run]
        if own:
            expected = self.progress.num_workers or len(self.progress.workers)
            self.evaluation.feed(self._reader.view(step, own, num_workers=expected))
        return bool(own)
