"""The files of one run on their way to the rule: noted, loaded, shown step by step."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final

from hook_layer.format.paths import index_key
from hook_layer.storage.base import Store
from rule_runtime.evaluation.evaluator import Evaluation
from rule_runtime.evaluation.outcome import RuleStatus
from rule_runtime.evaluation.progress import ProgressTracker, Sighting
from rule_runtime.evaluation.rule import Rule
from rule_runtime.evaluation.state import EvaluationState
from rule_runtime.trial.step_index import StepFile, iter_step_files
from rule_runtime.trial.step_view import StepReader

__all__ = ["FILES_AT_ONCE", "FileName", "RunFeed"]

FILES_AT_ONCE: Final = 256
"""Index files that are asked for in one go."""

_KEPT_BYTES: Final = 32 << 20
"""Length of the files kept, parsed, until they are fed; others are read a second time."""

FileName = tuple[int, str]
"""Step and worker, which name an index file."""


class RunFeed:
    """Feeds the files of one run to one rule; the mutable twin of a state.

    Args:
        store: The trial's root.
        rule: The rule.
        run: RunId of the run; None for files that carry none.
        reader: Makes the views of steps.
        state: The state to go on from.

    Attributes:
        tracker: Which files were seen and fed.
        evaluation: The rule's answers.
    """

    def __init__(
        self, store: Store, rule: Rule, run: str | None, reader: StepReader, state: EvaluationState
    ) -> None:
        self._store = store
        self._rule = rule
        self._run = run
        self._reader = reader
        self._state = state
        self.tracker = ProgressTracker(state.progress)
        self.evaluation = Evaluation.resume(rule, state)
        self._last_problem = state.counts.last_problem
        self._kept: dict[FileName, StepFile] = {}
        self._kept_bytes = 0

    def take_in(self, files: Iterable[StepFile]) -> bool:
        """Note files; return True if one of them can change anything.

        Args:
            files: Index files, of this run or others, in any order.
        """
        is_news = False
        for file in sorted(files, key=_name_of):
            sighting = self._note(file)
            if sighting is Sighting.NEW:
                self._keep(file)
            may_be_late = file.index is not None and file.index.sequence is None
            is_news = is_news or sighting is not Sighting.DUPLICATE or may_be_late
        self.tracker.settle()
        return is_news

    def load(self, keys: Iterable[str]) -> None:
        """Read index files and note them.

        Args:
            keys: Their keys.
        """
        for file in iter_step_files(self._store, keys):
            if self._note(file) is Sighting.NEW:
                self._keep(file)
        self.tracker.settle()

    def look_up_num_workers(self) -> None:
        """Find out how many workers write, if the index files did not tell."""
        if self.tracker.num_workers is None:
            self.tracker.num_workers = self._reader.num_workers()

    def feed_steps(self, steps: Sequence[int]) -> None:
        """Feed steps whose files were noted.

        Args:
            steps: The steps in order.
        """
        names = [(step, worker) for step in steps for worker in self.tracker.writers(step)]
        found = _by_step(self._get(names))
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
            self.tracker.mark_fed(step)
            self._forget(step)

    def feed_files(self, names: Sequence[FileName]) -> None:
        """Note files and feed their steps as they are, whatever may be missing.

        Args:
            names: The files in step order; those of a step together.
        """
        for step, of_step in _by_step(self._get(names)):
            if self.has_failed:
                return
            files = list(of_step)
            self.take_in(files)
            if self._evaluate(step, files):
                self.tracker.mark_fed(step)
            self._forget(step)

    def replay(self, names: Iterable[FileName]) -> None:
        """Judge the run again from its beginning; a finding is added, never withdrawn.

        Args:
            names: The files in step order.
        """
        first = self.evaluation
        self.evaluation = Evaluation.fresh(self._rule)
        for chunk in _chunks(names):
            for step, of_step in _by_step(self._get(chunk)):
                self._evaluate(step, of_step)
            if self.has_failed:
                break
        if self.evaluation.evidence is None:
            self.evaluation.evidence = first.evidence

    def state(self) -> EvaluationState:
        """Return the state as it is now, its status raised to a finding if there is one."""
        evaluation = self.evaluation
        state = replace(
            self._state,
            progress=self.tracker.to_progress(),
            memory=evaluation.memory,
            evidence=evaluation.evidence,
            counts=evaluation.counts(len(self.tracker.unreadable), self._last_problem),
            ended=self._state.ended or self.has_failed,
        )
        if evaluation.evidence is not None:
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
        at_hand = sorted((self._kept[name] for name in names if name in self._kept), key=_name_of)
        missing = [index_key(*name) for name in names if name not in self._kept]
        return heapq.merge(at_hand, iter_step_files(self._store, missing), key=_name_of)

    def _keep(self, file: StepFile) -> None:
        if self._kept_bytes + file.num_bytes <= _KEPT_BYTES:
            self._kept[_name_of(file)] = file
            self._kept_bytes += file.num_bytes

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


def _name_of(file: StepFile) -> FileName:
    return file.step, file.worker


def _by_step(files: Iterable[StepFile]) -> Iterator[tuple[int, Iterator[StepFile]]]:
    return groupby(files, key=lambda file: file.step)


def _chunks(names: Iterable[FileName]) -> Iterator[list[FileName]]:
    """Yield the names in lists of about `FILES_AT_ONCE`; a step's names stay together."""
    chunk: list[FileName] = []
    for _, of_step in groupby(names, key=lambda name: name[0]):
        chunk.extend(of_step)
        if len(chunk) >= FILES_AT_ONCE:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
