"""Evaluates a run while it is stored, by polling its folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone

from hook_layer.format.job_file import StopFile
from hook_layer.format.paths import STOP_FILE
from hook_layer.storage.base import Store
from rule_runtime.diagnosis.diagnosis import findings_in_words
from rule_runtime.embedded.result_writer import ResultWriter
from rule_runtime.embedded.stop_policy import StopPolicy
from rule_runtime.engine.outcome import RuleStatus
from rule_runtime.engine.reconciler import Reconciler
from rule_runtime.engine.rule import Rule
from rule_runtime.engine.state import EvaluationState
from rule_runtime.trial.run_files import current_run, last_sequences, named_run
from rule_runtime.trial.step_index import StepFile, list_index_files, load_step_files
from rule_runtime.trial.step_view import StepReader

__all__ = ["LiveJudge"]

_Rules = Sequence[tuple[str, Rule]]

_MAX_FILES = 512
"""Maximum index files in memory; the next update reads the following ones."""
_STEPS_LOOKED_BACK = 100
"""Number of steps before the newest one that are searched for files of slower workers."""


class LiveJudge:
    """Updates the verdicts of rules from a folder on each call.

    Args:
        store: The trial's root.
        rules: The rules by displayed name, or a function that returns them, called when the run is
            found.
        stops: Which findings stop the run; None for none.
        run: RunId of the run, which may have no files yet; None for the first run in the store.
        clock: Returns seconds since the epoch.
        on_files: Called with the index files that were read, of any run.
        stores_verdicts: Whether verdicts are written beside the tensors.

    Attributes:
        states: The state of each rule, by its name.
        stopped_by: Name of the rule whose finding requested the stop; None without one.
        first_step: The first saved step that was evaluated; None before.
    """

    def __init__(
        self,
        store: Store,
        rules: _Rules | Callable[[], _Rules],
        *,
        stops: StopPolicy | None = None,
        run: str | None = None,
        clock: Callable[[], float] = time.time,
        on_files: Callable[[Sequence[StepFile]], None] = lambda _: None,
        stores_verdicts: bool = True,
    ) -> None:
        self._store = store
        self._rules = {} if callable(rules) else dict(rules)
        self._find_rules = rules if callable(rules) else None
        self._stops = stops or StopPolicy()
        self._awaited_run = run
        self._clock = clock
        self._on_files = on_files
        self._results = ResultWriter(store, clock) if stores_verdicts else None
        self._run: str | None = None
        self._has_run = False
        self._reader = StepReader(store)
        self._reconcilers: dict[str, Reconciler] = {}
        self._seen: dict[str, int] = {}
        self._newest_step = -1
        self._unjudged: list[StepFile] = []
        self.states: Mapping[str, EvaluationState] = {
            name: EvaluationState.initial() for name in self._rules
        }
        self.stopped_by: str | None = None
        self.first_step: int | None = None

    def look(self, *, is_over: bool = False) -> bool:
        """Read new files, and request a stop if a finding requires it.

        If it raises an error, nothing is lost: the next call continues.

        Args:
            is_over: True when writing has ended: verdicts become final.

        Returns:
            Whether there was new data.
        """
        if not self._has_run and not self._find_run(is_over=is_over):
            return False
        files = self._new_files()
        while is_over and len(files) == _MAX_FILES:
            self._advance(files)
            files = self._new_files()
        if files or is_over:
            self._advance(files, is_over=is_over)
        if is_over:
            return True
        request = self.stop_request  # an earlier request may have failed
        has_asked = request is not None and self.ask_to_stop(request)
        return bool(files) or has_asked

    @property
    def stop_request(self) -> StopFile | None:
        """The reason for a stop; None if no finding requires one."""
        for name, state in self.states.items():
            if state.status is RuleStatus.ISSUES_FOUND and self._stops.stops(name, state.evidence):
                evidence = state.evidence
                finding = name if evidence is None else f"{name}: {evidence.sentence}"
                now = datetime.fromtimestamp(self._clock(), timezone.utc)
                return StopFile(
                    reason=f"{findings_in_words(self.states)}; {finding}",
                    requested_at=now.isoformat(timespec="seconds"),
                    run_id=self._run,
                    rule_configuration_name=name,
                    evidence=None if evidence is None else evidence.to_json(),
                )
        return None

    def ask_to_stop(self, request: StopFile) -> bool:
        """Request a stop of this run's training once; return whether this call requested it."""
        if not self._has_run or self.stopped_by is not None:
            return False
        self._store.put(STOP_FILE, replace(request, run_id=self._run).encode())
        self.stopped_by = request.rule_configuration_name
        return True

    @property
    def run(self) -> str | None:
        """RunId of the evaluated run; None before it was found, or if it has none."""
        return self._run

    def _advance(self, files: Sequence[StepFile], *, is_over: bool = False) -> None:
        last = last_sequences(self._store, self._run) if is_over else None
        now = None if is_over else self._clock()
        self._reader.collections.forget()
        states = {
            name: reconciler.advance(
                self.states[name], files, ended=is_over, last_sequences=last, now=now
            )
            for name, reconciler in self._reconcilers.items()
        }
        if self._results is not None:
            self._results.write(self._run, self.states, states)
        self.states = states
        if files and self.first_step is None:
            self.first_step = files[0].step
        self._unjudged = []

    def _find_run(self, *, is_over: bool) -> bool:
        """Start to evaluate the run that `job.json` names; at the end, any run."""
        found = current_run(self._store) if is_over else named_run(self._store)
        run = self._awaited_run or found
        if not is_over and (found is None or found != run):
            return False
        if self._find_rules is not None:
            self._rules = dict(self._find_rules())
            self.states = {name: EvaluationState.initial() for name in self._rules}
        self._run, self._has_run = run, True
        self._reconcilers = {
            name: Reconciler(self._reader, rule, run) for name, rule in self._rules.items()
        }
        return True

    def _new_files(self) -> list[StepFile]:
        if self._unjudged:  # the update that read them failed later
            return self._unjudged
        first = self._newest_step - _STEPS_LOOKED_BACK
        found = {
            key: name.step for key, name in list_index_files(self._store, after_step=max(-1, first))
        }
        unread = [key for key in found if key not in self._seen][:_MAX_FILES]
        files = load_step_files(self._store, unread)
        self._on_files(files)
        # Steps of an earlier run in the folder may be far ahead.
        ours = [f.step for f in files if f.index is not None and f.index.run == self._run]
        self._newest_step = max([self._newest_step, *ours])
        oldest = self._newest_step - 2 * _STEPS_LOOKED_BACK
        seen = {**self._seen, **{key: found[key] for key in unread}}
        self._seen = {key: step for key, step in seen.items() if step > oldest}
        self._unjudged = files
        return files
