"""Judging a run while it is being stored, by looking at its folder now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone

from hook_layer.format.job_file import StopFile
from hook_layer.format.paths import STOP_FILE
from hook_layer.storage.base import Store
from rule_runtime.evaluation.outcome import RuleStatus
from rule_runtime.evaluation.reconciler import Reconciler
from rule_runtime.evaluation.rule import Rule
from rule_runtime.evaluation.state import EvaluationState
from rule_runtime.trial.run_files import current_run, named_run, read_end_marker
from rule_runtime.trial.step_index import StepFile, list_index_files, load_step_files

__all__ = ["LiveJudge"]

_STEPS_LOOKED_BACK = 100
"""Steps behind the newest one in which files of slower workers are looked for."""


class LiveJudge:
    """Brings the verdicts of rules up to date with a folder, whenever it is asked to.

    Args:
        store: The trial's root.
        rules: The rules and the names under which they are told.
        stops: Tells of a rule's name whether its finding is to end the training.
        clock: Seconds since the epoch.

    Attributes:
        states: The state of each rule, by its name.
        stopped_by: Name of the rule whose finding asked for the end; None while none has.
    """

    def __init__(
        self,
        store: Store,
        rules: Sequence[tuple[str, Rule]],
        *,
        stops: Callable[[str], bool],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._rules = dict(rules)
        self._stops = stops
        self._clock = clock
        self._run: str | None = None
        self._has_run = False
        self._reconcilers: dict[str, Reconciler] = {}
        self._seen: dict[str, int] = {}
        self.states: Mapping[str, EvaluationState] = {
            name: EvaluationState.initial() for name in self._rules
        }
        self.stopped_by: str | None = None

    def look(self, *, is_over: bool = False) -> bool:
        """Take in what has been stored since, and ask for the end if a finding is reason enough.

        Args:
            is_over: True once nobody writes any more: the verdicts are drawn.

        Returns:
            Whether there was anything new.

        Raises:
            StorageError: The storage cannot be read.
        """
        if not self._has_run and not self._find_run(is_over=is_over):
            return False
        files = self._new_files()
        if not (files or is_over):
            return False
        marker = read_end_marker(self._store) if is_over else None
        last = marker.sequences if marker is not None and marker.run_id == self._run else None
        now = None if is_over else self._clock()
        self.states = {
            name: reconciler.advance(
                self.states[name], files, ended=is_over, last_sequences=last, now=now
            )
            for name, reconciler in self._reconcilers.items()
        }
        if not is_over:
            self._ask_to_stop()
        return True

    def _find_run(self, *, is_over: bool) -> bool:
        """Begin to judge the run that `job.json` names; at the end whichever there is."""
        run = current_run(self._store) if is_over else named_run(self._store)
        if run is None and not is_over:
            return False
        self._run, self._has_run = run, True
        self._reconcilers = {
            name: Reconciler(self._store, rule, run) for name, rule in self._rules.items()
        }
        return True

    def _new_files(self) -> list[StepFile]:
        newest = max(self._seen.values(), default=-1)
        found = {
            key: name.step
            for key, name in list_index_files(
                self._store, after_step=max(-1, newest - _STEPS_LOOKED_BACK)
            )
        }
        new = [key for key in found if key not in self._seen]
        oldest = max(found.values(), default=-1) - 2 * _STEPS_LOOKED_BACK
        self._seen = {k: step for k, step in {**self._seen, **found}.items() if step > oldest}
        return load_step_files(self._store, new)

    def _ask_to_stop(self) -> None:
        if self.stopped_by is not None:
            return
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
                return
