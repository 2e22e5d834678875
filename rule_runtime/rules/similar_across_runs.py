"""SimilarAcrossRuns: a tensor that differs from that of another run at the same step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from hook_layer.format.index import STATISTICS_COLUMNS
from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import Evidence, IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.engine.parameters import ParameterError
from rule_runtime.engine.rule import Memory, Regex, Rule
from rule_runtime.facts.comparing import (
    Likeness,
    compare,
    matched,
    statistics_of,
    with_numbers,
)
from rule_runtime.facts.selection import evidence, selected_collections, worst
from rule_runtime.numerics.closeness import Tolerance
from rule_runtime.trial.other_trials import OtherTrialError
from rule_runtime.trial.value_pairs import value_pairs

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["SimilarAcrossRuns"]

_TOLERANCE: Final = Tolerance(rtol=1e-5, atol=1e-8, equal_nan=True)

_AT: Final = {name: at for at, name in enumerate(STATISTICS_COLUMNS)}

_REMEDY: Final = (
    "Compare the two runs' code, data, seeds, hyperparameters and library versions; the first step "
    "and the first layer that differ show where they part. Non-deterministic kernels and another "
    "number of workers make small differences that grow."
)


class SimilarAcrossRuns(Rule):
    """Finds tensors that differ from those of another run at the same step.

    How it decides:
        At each step of any mode, each selected tensor is compared with the one of the same name and
        worker at the same step of each other run: the same step of the same mode, or the same
        global step where one of the two runs does not tell modes apart. It fires if
        numpy.allclose(this, other) does not hold, with its default tolerances (1e-5 of the other
        value, and 1e-8 besides); a NaN equals a NaN, and another shape is a difference. Tensors,
        workers and steps that one of the runs does not have are passed over, and so are tensors
        without elements, and texts. The first tensor by name is the evidence, with its largest
        difference. Values are read only where statistics neither prove a difference nor tell
        everything, as they do of scalars; where they were not saved, tensors whose statistics
        prove no difference count as similar.
        Other runs must lie beside this one: in the same bucket or file system, under the folder
        that holds this job.

    Parameters:
        other_trials: The other runs: names of jobs that write beside this one, paths or URIs.
        collection_names: Collections to look at; together with `tensor_regex`, their union. All
            saved tensors if neither is given.
        tensor_regex: Regular expressions of further tensors to look at.
        other_trial_0: A further run, as the service passes it on.
        other_trial_1: Likewise.
        other_trial_2: Likewise.
        other_trial_3: Likewise.
        other_trial_4: Likewise. At least one run must be given.

    What to try:
        Compare code, data, seeds, hyperparameters and versions of the two runs, beginning with the
        first step that differs; switch on deterministic algorithms.
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
        values = {"save_raw_tensor": "True"}
        return selected_collections(
            "SimilarAcrossRuns", self.collection_names, self.tensor_regex, values
        )

    def check(self, step: StepView, memory: Memory) -> Outcome:  # noqa: ARG002
        """Compare the tensors of the step with those of the other runs.

        Args:
            step: What was saved at the step.
            memory: Not used.
        """
        rows = self._select(step)
        if not len(rows):
            return NotEvaluated("none of the selected tensors was saved")
        problems: list[str] = []
        num_compared = 0
        found: list[_Difference] = []
        for root in self._roots:
            try:
                other = step.in_other_trial(root)
            except OtherTrialError as error:
                problems.append(str(error))
                continue
            if other is None:
                problems.append(f"other trial {root!r} does not have the step")
                continue
            others = self._select(other)
            likeness = compare(step, rows, other, others, _TOLERANCE)
            num_compared += int(np.count_nonzero(likeness != Likeness.ABSENT))
            if not (likeness != Likeness.ABSENT).any():
                problems.append(f"other trial {root!r} has none of the tensors at the step")
            found.append(_Difference(root, other, others, likeness == Likeness.DIFFERENT))
        found = [difference for difference in found if difference.rows.any()]
        if found:
            return IssueFound(_evidence(step, rows, found))
        return Passed() if num_compared else NotEvaluated(problems[0])

    @property
    def _roots(self) -> list[str]:
        """The other runs, each once."""
        numbered = (
            self.other_trial_0,
            self.other_trial_1,
            self.other_trial_2,
            self.other_trial_3,
            self.other_trial_4,
        )
        named = (*self.other_trials, *numbered)
        return list(dict.fromkeys(root for root in named if root))

    def _select(self, step: StepView) -> TensorRows:
        return with_numbers(
            step.tensors(collections=self.collection_names, regex=self.tensor_regex)
        )


class _Difference(NamedTuple):
    """What differs from one other run: its name, its step and rows, and which of our rows [R]."""

    root: str
    step: StepView
    others: TensorRows
    rows: npt.NDArray[np.bool_]


def _evidence(step: StepView, rows: TensorRows, found: list[_Difference]) -> Evidence:
    """Return the evidence of the first tensor by name that differs, from the first run named."""
    is_different = np.any([difference.rows for difference in found], axis=0)
    at = worst(rows, np.where(is_different, 0.0, np.nan), largest=True)
    difference = next(difference for difference in found if difference.rows[at])
    value, is_exact = _largest_difference(step, rows.select([at]), difference)
    by = f"by {'' if is_exact else 'at least '}{value:.3g}" if value >= 0 else "in shape or kind"
    return evidence(
        step,
        rows,
        at,
        measure="max_difference",
        value=value if value >= 0 else np.inf,
        threshold=_TOLERANCE.atol,
        message=(
            f"differs {by} from run {difference.root} at its step {difference.step.step}; "
            f"{np.count_nonzero(is_different)} of {len(rows)} tensors differ"
        ),
        remedy=_REMEDY,
    )


def _largest_difference(
    step: StepView, row: TensorRows, difference: _Difference
) -> tuple[float, bool]:
    """Return the largest distance of two elements, and whether it is exact; -1 if there is none."""
    name, worker = row.names[0], row.workers[0]
    for _, ours, theirs in value_pairs(step, difference.step, (name,), worker):
        if ours.shape != theirs.shape or not {ours.dtype.kind, theirs.dtype.kind} <= set("biufc"):
            return -1.0, True
        with np.errstate(all="ignore"):
            distance = np.abs(np.subtract(ours, theirs, dtype=np.result_type(ours, theirs, 1.0)))
        known = distance[~np.isnan(distance)]
        return (float(known.max()), True) if known.size else (-1.0, True)
    _, there = matched(row, difference.others)
    ours, theirs = statistics_of(row)[0], statistics_of(difference.others.select(there))[0]
    with np.errstate(all="ignore"):
        # No two tensors whose means or extremes are this far apart are closer in every element.
        lower_bounds = np.abs(ours - theirs)[[_AT["min"], _AT["max"], _AT["mean"]]]
    known = lower_bounds[np.isfinite(lower_bounds)]
    return (float(known.max()), False) if known.size else (-1.0, True)
