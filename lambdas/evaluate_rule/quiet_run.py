"""A run without recent files: its verdict, and when it counts as ended."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from lambdas.contracts.events import MAX_INDEX_LAG_S
from lambdas.shared.state_item import num_seen
from lambdas.shared.wake import WakeReason
from rule_runtime.engine.evidence import completed_for_silence
from rule_runtime.engine.outcome import IssueFound, RuleStatus
from rule_runtime.engine.state import Progress

if TYPE_CHECKING:
    from lambdas.shared.state_table import StoredState
    from lambdas.shared.wake import Wake
    from rule_runtime.engine.rule import Rule
    from rule_runtime.engine.state import EvaluationState

__all__ = ["QuietRun"]

_logger: Final = logging.getLogger(__name__)

_CLOCKS_S: Final = 5.0
"""Maximum difference between the clocks of two functions, seconds."""
_INACCURACY_S: Final = MAX_INDEX_LAG_S + _CLOCKS_S
"""Maximum excess of the silence in a wake, seconds: the sweep reads it from the index."""


@dataclass(frozen=True)
class QuietRun:
    """Silence of a run.

    Attributes:
        silent_s: Seconds since the last files were processed; 0 if silence is irrelevant.
        is_over: Whether the run therefore counts as ended.
        progress: Progress of the run when it was checked.
    """

    silent_s: float = 0.0
    is_over: bool = False
    progress: Progress = field(default_factory=Progress)

    @classmethod
    def of(cls, wake: Wake | None, stored: StoredState, now: float) -> QuietRun:
        """Return the silence of a run.

        The wake may be old, so files after it was sent count.

        Args:
            wake: The wake for the run; None if it has new files.
            stored: The run's state.
            now: Seconds since the epoch.
        """
        silent_s = now - stored.updated_at_ms / 1000
        if wake is None or not wake.silent_s or silent_s < wake.silent_s - _INACCURACY_S:
            return cls()
        # The wake includes signs of life other than files.
        silent_s = min(silent_s, wake.silent_s)
        return cls(silent_s, wake.reason is WakeReason.SILENT, stored.state.progress)

    @property
    def note(self) -> str:
        """Explanation of an end by silence; empty if the run has not ended."""
        if not self.is_over:
            return ""
        return f"counts as ended: no output for {self.silent_s:.0f} s, and no end marker"

    def evaluated(self, rule: Rule, state: EvaluationState) -> EvaluationState:
        """Return a state with the rule's verdict on the silence, which must be relevant.

        Args:
            rule: The rule.
            state: The state after a listing of files without events.
        """
        is_decided = state.ended or state.progress.finishing is not None or state.counts.failure
        if self.is_over or is_decided or state.evidence is not None:
            return state
        if num_seen(state.progress) != num_seen(self.progress):
            return state  # there were files
        last_step = _last_step(state.progress)
        try:
            outcome = rule.check_silence(self.silent_s, last_step)
        except (Exception, SystemExit):  # custom rules may run any code
            name = type(rule).__name__
            _logger.warning("%s could not evaluate a silent run", name, exc_info=True)
            return state
        if not isinstance(outcome, IssueFound):
            return state
        evidence = completed_for_silence(outcome.evidence, type(rule), last_step)
        found = replace(state, evidence=evidence)
        return found.with_status(RuleStatus.ISSUES_FOUND)


def _last_step(progress: Progress) -> int:
    """Return the last step with a file; -1 if there is none."""
    steps = [progress.fed_step]
    for worker in progress.workers.values():
        steps += [worker.passed_step, *worker.pending]
    return max(steps)
