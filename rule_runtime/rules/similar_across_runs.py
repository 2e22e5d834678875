"""SimilarAcrossRuns: detects tensors that differ from those of another run at the same step."""

from __future__ import annotations

from typing import Final

import numpy as np

from hook_layer.format.index import STATISTICS_COLUMNS
from rule_runtime.engine.findings import finding
from rule_runtime.engine.outcome import IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.engine.parameters import ParameterError
from rule_runtime.engine.rule import Memory
from rule_runtime.engine.selection import SelectedTensorsRule
from rule_runtime.facts.tensor_changes import TensorPairs, compare, with_numbers
from rule_runtime.numerics.tensor_change import Tolerance
from rule_runtime.trial.other_trials import OtherTrialError
from rule_runtime.trial.step_view import StepView
from rule_runtime.trial.tensor_rows import worst

__all__ = ["SimilarAcrossRuns"]

_TOLERANCE: Final = Tolerance(rtol=1e-5, atol=1e-8, equal_nan=True)  # the default of numpy.allclose
_ORDER: Final = (IssueFound, Passed, NotEvaluated)
"""The outcome over several runs is the first of these."""


class SimilarAcrossRuns(SelectedTensorsRule):
    """Detects tensors that differ from those of another run at the same step.

    How it decides:
        The rule compares each selected tensor with that of the same name, worker and step of each
        other run, by numpy.allclose. It reports the first tensor by name that differs.

    Parameters:
        collection_names: Collections to compare; by default all saved tensors.
        tensor_regex: Regular expressions of further tensors to compare.
        other_trials: Names of jobs that write next to this one, or paths or URIs of such runs.
        other_trial_0: A further run, set by the service.
        other_trial_1: A further run.
        other_trial_2: A further run.
        other_trial_3: A further run.
        other_trial_4: A further run.

    What to try:
        Compare code, data, seeds and library versions of the two runs. The first step and layer
        that differ show the cause. Small differences that grow come from non-deterministic kernels.
    """

    must_select = False
    needs_values = True

    other_trials: tuple[str, ...] = ()
    other_trial_0: str | None = None
    other_trial_1: str | None = None
    other_trial_2: str | None = None
    other_trial_3: str | None = None
    other_trial_4: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self._roots:
            raise ParameterError(
                "SimilarAcrossRuns: no run to compare with; give other_trials, the name of a job "
                "or the root of a trial"
            )

    def check(self, step: StepView, memory: Memory) -> Outcome:  # noqa: ARG002
        """Compare the tensors of the step with those of the other runs."""
        outcomes = [self._compared(step, root) for root in self._roots]
        return min(outcomes, key=lambda outcome: _ORDER.index(type(outcome)))

    def _compared(self, step: StepView, root: str) -> Outcome:
        """Compare the tensors of the step with those of another run."""
        rows = with_numbers(self.evaluated_tensors(step))
        try:
            other = step.in_other_trial(root)
        except OtherTrialError as error:
            return NotEvaluated(str(error))
        if other is None:
            return NotEvaluated(f"run {root!r} has no such step: save both runs at the same steps")
        pairs = TensorPairs(step, rows, other, with_numbers(self.select(other)))
        if not len(pairs.at):
            return NotEvaluated(f"run {root!r} has none of the tensors: save the same ones")
        _, is_different = compare(pairs, _TOLERANCE)
        if not is_different.any():
            return Passed()
        at = worst(pairs.rows, np.where(is_different, 0.0, np.nan), largest=True)
        value = _largest_difference(pairs, at)
        by = f"by {value:.3g} or more" if np.isfinite(value) else "in shape, kind or finiteness"
        message = f"differs {by} from run {root} at its step {other.step}; "
        message += f"{int(is_different.sum())} of {len(rows)} tensors differ"
        measured = ("max_difference", value, _TOLERANCE.atol)
        return finding(self, step, (pairs.rows, at), measured, message)

    @property
    def _roots(self) -> list[str]:
        """The distinct other runs."""
        numbered = (getattr(self, f"other_trial_{at}") for at in range(5))
        return list(dict.fromkeys(root for root in (*self.other_trials, *numbered) if root))


def _largest_difference(pairs: TensorPairs, at: int) -> float:
    """Return the largest difference of two elements of a tensor; infinite if unknown.

    Without saved values, it is a lower bound: the difference of the means or extremes.
    """
    columns = [STATISTICS_COLUMNS.index(name) for name in ("min", "max", "mean")]
    with np.errstate(all="ignore"):
        distance = np.abs(pairs.now[at, columns] - pairs.before[at, columns])
        for _, one, two in pairs.values(np.arange(len(pairs.at)) == at):
            if one.shape != two.shape or not {one.dtype.kind, two.dtype.kind} <= set("biufc"):
                return np.inf
            distance = np.abs(np.subtract(one, two, dtype=np.result_type(one, two, 1.0)))
    known = distance[~np.isnan(distance)]
    return float(known.max()) if known.size else np.inf
