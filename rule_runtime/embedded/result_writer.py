"""Writes verdicts as files beside the tensors, like the cloud evaluators."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping

from hook_layer.format.paths import job_name_of
from hook_layer.storage.base import StorageError, Store, open_store
from rule_runtime.engine.outcome import status_details
from rule_runtime.engine.result_file import RuleResult, result_place
from rule_runtime.engine.state import EvaluationState

__all__ = ["ResultWriter"]

logger = logging.getLogger("stepwatch")

_States = Mapping[str, EvaluationState]


class ResultWriter:
    """Writes `rule-output/<rule>/status.json` of one run.

    A failure to write is reported once and changes no verdict.
    """

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._changed_at_ms: dict[str, int] = {}
        self._has_failed = False

    def write(self, run_id: str | None, before: _States, after: _States) -> None:
        """Write verdicts that are new or have changed evidence."""
        for name, state in after.items():
            earlier = before.get(name)
            if earlier is None or earlier.status is not state.status:
                self._changed_at_ms[name] = round(self._clock() * 1000)
            has_changes = earlier is None or (
                (earlier.status, earlier.evidence, earlier.ended)
                != (state.status, state.evidence, state.ended)
            )
            if state.status.is_final and has_changes:
                self._put(name, state, run_id or "")

    def _put(self, name: str, state: EvaluationState, run_id: str) -> None:
        root = self._store.uri
        result = RuleResult(
            training_job_name=job_name_of(root),
            run_id=run_id,
            root_uri=root,
            rule=name,
            status=state.status,
            details=status_details(name, state),
            changed_at_ms=self._changed_at_ms.get(name, round(self._clock() * 1000)),
            evidence=None if state.evidence is None else state.evidence.to_json(),
            advice=state.counts.advice or None,
        )
        folder, key = result_place(root, name)
        try:
            store = self._store if folder == root else open_store(folder)
            store.put(key, json.dumps(result.to_json(), indent=2).encode())
        except (StorageError, ValueError) as error:
            if not self._has_failed:
                logger.warning("the verdict of %s is not written as a file: %s", name, error)
            self._has_failed = True
