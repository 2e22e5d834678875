"""Bringing a rule's state up to date with the files of a run.

`Reconciler.advance(state, files)` is a function of the state and the stored files: an event only
says "look again". Lost, doubled and reordered events change nothing in the result, because a step
is fed once, in step order, and only when nothing can be missing from it (`progress.py` says how
that is known). If an error is raised, nothing has changed, and the same call may be made again.
"""

from __future__ import annotations

from collections import Counter
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
from rule_runtime.trial.step_index import StepFile, list_index_files, load_step_files
from rule_runtime.trial.step_view import StepReader

__all__ = ["Reconciler"]

_FILES_AT_ONCE: Final = 256
"""Index files held in memory when many steps are fed in one go."""

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
        self, state: EvaluationState, files: Sequence[StepFile], *, ended: bool = False
    ) -> EvaluationState:
        """Return the state after these files, and any that they show to be missing, were taken in.

        Args:
            state: The state when the run was last looked at.
            files: Index files that have come since, in any order; known ones do no harm.
            ended: True once the end marker of this run was seen. Everything that is left is fed,
                also steps that some worker did not write, and the verdict is drawn. May be
                repeated.

        Raises:
            StorageError: If the storage fails otherwise than by a missing object.
        """
        session = _Session(self._store, self._rule, self._run, self._reader, state)
        is_news = session.take_in(files)
        if state.ended:
            return session.finish() if is_news else state
        session.feed_what_is_ready(has_news=is_news)
        return session.finish() if ended else session.result()


class _Session:
    """One call of `advance`: the mutable copies of all that the state holds."""

    def __init__(
        self, store: Store, rule: Rule, run: str | None, reader: StepReader, state: EvaluationState
    ) -> None:
        self._store = store
        self._rule = rule
        self._run = run
        self._reader = reader
        self._state = state
        self._tracker = ProgressTracker(state.progress)
        self._evaluation = Evaluation.resume(rule, state)
        self._last_problem = state.counts.last_problem
        self._loaded: dict[tuple[int, str], StepFile] = {}

    # ------------------------------------------------------------------ taking files in

    def take_in(self, files: Iterable[StepFile]) -> bool:
        """Note files; return True if one of them can change anything."""
        is_news = False
        for file in sorted(files, key=lambda file: (file.step, file.worker)):
            sighting = self._note(file)
            if sighting is Sighting.NEW:
                self._loaded[file.step, file.worker] = file
            may_be_late = file.index is not None and file.index.sequence is None
            is_news = is_news or sighting is not Sighting.DUPLICATE or may_be_late
        self._tracker.settle()
        return is_news

    def _note(self, file: StepFile) -> Sighting:
        if file.index is None:
            sighting = self._tracker.note_unreadable(file.worker, file.step)
            if sighting is Sighting.NEW:
                is_last = (file.step, file.worker) == max(self._tracker.unreadable)
                self._last_problem = (file.problem or "") if is_last else self._last_problem
            return sighting
        if not self._belongs(file):
            return Sighting.DUPLICATE
        if file.index.workers is not None:
            known = self._tracker.num_workers or 0
            self._tracker.num_workers = max(known, file.index.workers)
        return self._tracker.note(file.worker, file.step, file.index.sequence)

    def _belongs(self, file: StepFile) -> bool:
        return file.index is not None and file.index.run == self._run

    # ------------------------------------------------------------------ feeding while the job runs

    def feed_what_is_ready(self, *, has_news: bool) -> None:
        """Repair what the files show to be missing, and feed every step that is complete."""
        if has_news and self._tracker.num_workers is None:
            self._tracker.num_workers = self._reader.num_workers()
        while True:
            if has_news:
                self._repair()
            steps = self._tracker.ready_steps()
            self._feed(steps)
            # Only what had been forgotten for want of room can be found by looking once more.
            forgotten = any(track.forgotten for track in self._tracker.workers.values())
            if not (steps and forgotten):
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
        self.take_in(load_step_files(self._store, keys))
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
        if tracker.num_workers is None:
            tracker.num_workers = self._reader.num_workers()
        has_unsequenced = any(track.unsequenced for track in tracker.workers.values())
        is_unknown = has_unsequenced or not tracker.workers
        after = -1 if is_unknown else tracker.fed_step
        names = [
            (name.step, name.worker) for _, name in list_index_files(self._store, after_step=after)
        ]
        self._feed_rest(name for name in names if name[0] > tracker.fed_step)
        if any(track.unsequenced for track in tracker.workers.values()):
            tracker.count_late(Counter(worker for _, worker in names))
        if tracker.late > tracker.replayed:
            self._replay()
            tracker.replayed = tracker.late
        return self._conclude(self.result())

    def _feed_rest(self, names: Iterable[tuple[int, str]]) -> None:
        """Feed the listed steps in order, as they are; memory is bounded however many there are."""
        for chunk in _chunks(names, _FILES_AT_ONCE):
            files = self._load(chunk)
            self.take_in(files)
            for step, of_step in _by_step(files):
                if self._evaluate(step, of_step):
                    self._tracker.mark_fed(step)
            self._loaded.clear()
        for track in self._tracker.workers.values():
            track.pending.clear()
            track.forgotten = False

    def _replay(self) -> None:
        """Judge the run again from its beginning; a finding is added, never withdrawn."""
        first = self._evaluation
        self._evaluation = Evaluation.fresh(self._rule)
        names = ((name.step, name.worker) for _, name in list_index_files(self._store))
        for chunk in _chunks(names, _FILES_AT_ONCE):
            for step, of_step in _by_step(self._load(chunk)):
                self._evaluate(step, of_step)
        if self._evaluation.evidence is None:
            self._evaluation.evidence = first.evidence

    def _conclude(self, state: EvaluationState) -> EvaluationState:
        if self._evaluation.evidence is not None:
            verdict = RuleStatus.ISSUES_FOUND
        elif self._evaluation.evaluated:
            verdict = RuleStatus.NO_ISSUES_FOUND
        else:
            verdict = RuleStatus.ERROR
        if _RANK.get(state.status, -1) < _RANK[verdict]:
            state = state.with_status(verdict)
        return replace(state, ended=True)

    # ------------------------------------------------------------------ feeding

    def _feed(self, steps: Sequence[int]) -> None:
        names = ((step, worker) for step in steps for worker in self._tracker.writers(step))
        for chunk in _chunks(names, _FILES_AT_ONCE):
            found = {step: list(of_step) for step, of_step in _by_step(self._load(chunk))}
            for step in sorted({step for step, _ in chunk}):
                if not self._evaluate(step, found.get(step, ())):
                    self._evaluation.skip(f"the index files of step {step} are gone")
                self._tracker.mark_fed(step)
            for name in chunk:
                self._loaded.pop(name, None)

    def _load(self, names: Sequence[tuple[int, str]]) -> list[StepFile]:
        """Return files by name in step order, reading only those that are not at hand."""
        at_hand = [self._loaded[name] for name in names if name in self._loaded]
        missing = [index_key(*name) for name in names if name not in self._loaded]
        files = [*at_hand, *load_step_files(self._store, missing)]
        return sorted(files, key=lambda file: (file.step, file.worker))

    def _evaluate(self, step: int, files: Iterable[StepFile]) -> bool:
        """Feed one step; return False if none of its files belongs to the run."""
        own = [file for file in files if self._belongs(file)]
        if own:
            expected = self._tracker.num_workers or len(self._tracker.workers)
            self._evaluation.feed(self._reader.view(step, own, num_workers=expected))
        return bool(own)

    def result(self) -> EvaluationState:
        """Return the state as it is now, its status raised to a finding if there is one."""
        evaluation = self._evaluation
        state = replace(
            self._state,
            progress=self._tracker.to_progress(),
            memory=evaluation.memory,
            evidence=evaluation.evidence,
            counts=evaluation.counts(len(self._tracker.unreadable), self._last_problem),
        )
        is_found = evaluation.evidence is not None
        return state.with_status(RuleStatus.ISSUES_FOUND) if is_found else state


def _by_step(files: Iterable[StepFile]) -> Iterator[tuple[int, Iterator[StepFile]]]:
    return groupby(files, key=lambda file: file.step)


def _chunks(names: Iterable[tuple[int, str]], size: int) -> Iterator[list[tuple[int, str]]]:
    """Yield the names in lists of about `size`; a step's names stay together."""
    chunk: list[tuple[int, str]] = []
    for _, of_step in groupby(names, key=lambda name: name[0]):
        chunk.extend(of_step)
        if len(chunk) >= size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
