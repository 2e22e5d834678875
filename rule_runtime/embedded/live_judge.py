"""Judging a run while it is being stored, by looking at its folder now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone

from hook_layer.format.job_file import StopFile, new_run_id
from hook_layer.format.paths import STOP_FILE
from hook_layer.storage.base import Store
from rule_runtime.embedded.result_writer import ResultWriter
from rule_runtime.evaluation.outcome import RuleStatus
from rule_runtime.evaluation.reconciler import Reconciler
from rule_runtime.evaluation.rule import Rule
from rule_runtime.evaluation.state import EvaluationState
from rule_runtime.trial.run_files import current_run, last_sequences, named_run
from rule_runtime.trial.step_index import StepFile, list_index_files, load_step_files

__all__ = ["LiveJudge"]

_Rules = Sequence[tuple[str, Rule]]

_MAX_FILES = 512
"""Index files that are in memory at a time; those behind them are for the next look."""
_STEPS_LOOKED_BACK = 100
"""Steps behind the newest one in which files of slower workers are looked for."""


class LiveJudge:
    """Brings the verdicts of rules up to date with a folder, whenever it is asked to.

    Args:
        store: The trial's root.
        rules: The rules and the names under which they are told, or what returns them: it is asked
            when the run is found.
        stops: Tells of a rule's name whether its finding is to end the training.
        earlier_run: RunId of a run that was there before, and is not to be judged.
        clock: Seconds since the epoch.
        on_files: Called with the index files that were read, of whichever run.

    Attributes:
        states: The state of each rule, by its name.
        stopped_by: Name of the rule whose finding asked for the end; None while none has.
    """

    def __init__(
        self,
        store: Store,
        rules: _Rules | Callable[[], _Rules],
        *,
        stops: Callable[[str], bool],
        earlier_run: str | None = None,
        clock: Callable[[], float] = time.time,
        on_files: Callable[[Sequence[StepFile]], None] = lambda _: None,
    ) -> None:
        self._store = store
        self._rules = {} if callable(rules) else dict(rules)
        self._find_rules = rules if callable(rules) else None
        self._stops = stops
        self._earlier_run = earlier_run
        self._clock = clock
        self._on_files = on_files
        self._results = ResultWriter(store, clock)
        self._run: str | None = None
        self._has_run = False
        self._reconcilers: dict[str, Reconciler] = {}
        self._seen: dict[str, int] = {}
        self._newest_step = -1
        self._unjudged: list[StepFile] = []
        self.states: Mapping[str, EvaluationState] = {
            name: EvaluationState.initial() for name in self._rules
        }
        self.stopped_by: str | None = None

    def look(self, *, is_over: bool = False) -> bool:
        """Take in what has been stored since, and ask for the end if a finding is reason enough.

        If an error is raised, nothing is lost: the next look takes up what this one did not judge.

        Args:
            is_over: True once nobody writes any more: the verdicts are drawn.

        Returns:
            Whether there was anything new.

        Raises:
            StorageError: The storage cannot be read, or not be asked for the end.
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
        has_asked = self._ask_to_stop()  # an earlier look may have failed to
        return bool(files) or has_asked

    @property
    def run(self) -> str | None:
        """RunId of the run that is judged; None before it was found, or if it has none."""
        return self._run

    def _advance(self, files: Sequence[StepFile], *, is_over: bool = False) -> None:
        last = last_sequences(self._store, self._run) if is_over else None
        now = None if is_over else self._clock()
        states = {
            name: reconciler.advance(
                self.states[name], files, ended=is_over, last_sequences=last, now=now
            )
            for name, reconciler in self._reconcilers.items()
        }
        self._results.write(self._run, self.states, states)
        self.states = states
        self._unjudged = []

    def _find_run(self, *, is_over: bool) -> bool:
        """Begin to judge the run that `job.json` names; at the end whichever there is."""
        run = current_run(self._store) if is_over else named_run(self._store)
        is_earlier = run is not None and run == self._earlier_run
        if not is_over and (run is None or is_earlier):
            return False
        if is_earlier:
            run = new_run_id()  # nothing was stored by this one
        if self._find_rules is not None:
            self._rules = dict(self._find_rules())
            self.states = {name: EvaluationState.initial() for name in self._rules}
        self._run, self._has_run = run, True
        self._reconcilers = {
            name: Reconciler(self._store, rule, run) for name, rule in self._rules.items()
        }
        return True

    def _new_files(self) -> list[StepFile]:
        if self._unjudged:  # the look that read them failed behind that
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

    def _ask_to_stop(self) -> bool:
        """Ask for the end if a finding is reason enough, and tell whether it was asked for now."""
        if self.stopped_by is not None:
            return False
        for name, state in self.states.items():
            if state.status is RuleStatus.ISSUES_FOUND and self._stops(name):
                evidence = state.evidence
                reason = name if evidence is None else f"{name}: {evidence.sentence}"
                request = StopFile(
                    reason=reason,
                    requested_at=datetime.fromtimestamp(self._clock(), timezone.utc).isoformat(
                        timespec="seconds"
                    ),
                    run_id=self._run,
                    rule_configuration_name=name,
                    evidence=None if evidence is None else evidence.to_json(),
                )
                self._store.put(STOP_FILE, request.encode())
                self.stopped_by = name
                return True
        return False
