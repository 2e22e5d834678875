"""SimilarAcrossRuns: a tensor that differs from that of another run at the same step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import Evidence, IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.engine.parameters import ParameterError
from rule_runtime.engine.rule import Memory, Regex, Rule
from rule_runtime.facts.comparing import Likeness, compare, largest_difference, with_numbers
from rule_runtime.facts.selection import evidence, selected_collections, worst
from rule_runtime.numerics.closeness import Tolerance
from rule_runtime.trial.other_trials import OtherTrialError

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["SimilarAcrossRuns"]

_TOLERANCE: Final = Tolerance(rtol=1e-5, atol=1e-8, equal_nan=True)  # numpy.allclose's
_REMEDY: Final = (
    "Compare code, data, seeds, hyperparameters and library versions of the two runs. The first "
    "step and layer that differ show the cause. Small differences that grow come from "
    "non-deterministic kernels or another number of workers."
)


class SimilarAcrossRuns(Rule):
    """Detects tensors that differ from those of another run at the same step.

    How it decides:
        The rule compares each selected tensor with the one of the same name, worker and step of
        each other run, by numpy.allclose(this, other, equal_nan=True). It reports the first tensor
        by name that differs, with its largest difference. Tensors, workers and steps that one run
        lacks are ignored, and so are empty tensors and texts. Where values were not saved, a tensor
        differs only if its statistics prove it.

        The other runs must be next to this one: in the same bucket or file system, under the folder
        that holds this job.

    Parameters:
        other_trials: The other runs: names of jobs that write next to this one, paths or URIs.
        collection_names: Collections to compare; by default all saved tensors.
        tensor_regex: Regular expressions of further tensors to compare.
        other_trial_0: A further run, as the service passes it on.
        other_trial_1: A further run.
        other_trial_2: A further run.
        other_trial_3: A further run.
        other_trial_4: A further run.

    What to try:
        Compare code, data, seeds and versions of the two runs; use deterministic algorithms.
    """

    other_trials: tuple[str, ...] = ()
    collection_names: tuple[str, ...] = ()
    tensor_regex: Annotated[tuple[str, ...], Regex()] = ()
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

    def requires(self) -> tuple[CollectionConfig, ...]:
        """Return what was chosen, with values."""
        chosen = (self.collection_names, self.tensor_regex)
        return selected_collections("SimilarAcrossRuns", *chosen, {"save_raw_tensor": "True"})

    def check(self, step: StepView, memory: Memory) -> Outcome:  # noqa: ARG002
        """Compare the tensors of the step with those of the other runs.

        Args:
            step: What was saved at the step.
            memory: Not used.
        """
        rows = self._select(step)
        if not len(rows):
            return NotEvaluated("none of the selected tensors was saved")
        answers = [self._compared(step, rows, root) for root in self._roots]
        compared = [answer for answer in answers if isinstance(answer, _Comparison)]
        found = [answer for answer in compared if answer.is_different.any()]
        if found:
            return IssueFound(_evidence(step, rows, found))
        return Passed() if compared else NotEvaluated(str(answers[0]))

    def _compared(self, step: StepView, rows: TensorRows, root: str) -> _Comparison | str:
        """Return how the step compares with that of another run, or why it cannot be compared."""
        try:
            other = step.in_other_trial(root)
        except OtherTrialError as error:
            return str(error)
        if other is None:
            return f"other trial {root!r} does not have the step"
        others = self._select(other)
        likeness = compare(step, rows, other, others, _TOLERANCE)
        if not (likeness != Likeness.ABSENT).any():
            return f"other trial {root!r} has none of the tensors at the step"
        return _Comparison(root, other, others, likeness == Likeness.DIFFERENT)

    @property
    def _roots(self) -> list[str]:
        """The other runs, each once."""
        numbered = (getattr(self, f"other_trial_{at}") for at in range(5))
        return list(dict.fromkeys(root for root in (*self.other_trials, *numbered) if root))

    def _select(self, step: StepView) -> TensorRows:
        rows = step.tensors(collections=self.collection_names, regex=self.tensor_regex)
        return with_numbers(rows)


class _Comparison(NamedTuple):
    """Another run, its step and tensors, and which of this run's tensors differ from them [R]."""

    root: str
    step: StepView
    others: TensorRows
    is_different: npt.NDArray[np.bool_]


def _evidence(step: StepView, rows: TensorRows, found: list[_Comparison]) -> Evidence:
    """Return the evidence of the first tensor by name that differs, from the first run named."""
    is_different = np.any([comparison.is_different for comparison in found], axis=0)
    at = worst(rows, np.where(is_different, 0.0, np.nan), largest=True)
    first = next(comparison for comparison in found if comparison.is_different[at])
    value, is_exact = largest_difference(step, rows, at, first.step, first.others)
    by = f"by {'' if is_exact else 'at least '}{value:.3g}" if value >= 0 else "in shape or kind"
    share = f"{np.count_nonzero(is_different)} of {len(rows)} tensors differ"
    return evidence(
        step,
        rows,
        at,
        measure="max_difference",
        value=value if value >= 0 else np.inf,
        threshold=_TOLERANCE.atol,
        message=f"differs {by} from run {first.root} at its step {first.step.step}; {share}",
        remedy=_REMEDY,
    )
