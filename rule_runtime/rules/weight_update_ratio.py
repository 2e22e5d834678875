"""WeightUpdateRatio: updates that are too large or too small for the weights they change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import (
    Evidence,
    IssueFound,
    NotApplicable,
    NotEvaluated,
    Outcome,
    Passed,
)
from rule_runtime.engine.rule import AtLeast, GreaterThan, Memory, Rule, Unit
from rule_runtime.engine.wording import counted
from rule_runtime.facts.comparing import frozen_rows, matched, statistics_of
from rule_runtime.facts.missing_reasons import are_not_finite
from rule_runtime.facts.selection import evidence, is_training, worst
from rule_runtime.numerics.closeness import Tolerance, are_identical
from rule_runtime.numerics.point_history import PointHistory
from rule_runtime.numerics.update_ratio import ratio_bounds, update_ratio
from rule_runtime.trial.value_pairs import value_pairs

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["WeightUpdateRatio"]

_EXACT: Final = Tolerance(rtol=0.0, atol=0.0)

_REMEDY: Final = (
    "Too large: lower the learning rate, warm it up, clip gradients. Too small: raise the learning "
    "rate, check that it is not zero and that the optimiser has the parameter, and look for "
    "vanishing gradients."
)


class WeightUpdateRatio(Rule):
    """Finds weights whose updates are too large or too small for them.

    How it decides:
        At each training step s, for each tensor of the collection `weights` and each worker, the
        ratio mean(|w_s - w_ref|) / (mean(|w_s|) + `epsilon`) is compared with the thresholds; both
        comparisons are strict. The reference step is the saved step before or, with `num_steps`,
        the oldest saved step that is not older than s - num_steps (the one before where there is
        none). Steps are those of mode TRAIN if any was saved, else GLOBAL ones. The ratio is not
        divided by the number of steps between, so the thresholds depend on the saving interval.
        Ratios that are too large are told rather than those that are too small, and of several the
        most extreme. Tensors with elements that are not finite, or of another shape than before,
        are not judged.
        A weight that did not change in a single bit may be frozen on purpose. It is an issue if its
        gradient was saved at this step; or if no gradient was, and none of the worker's weights
        changed. Else it counts as frozen or unused, and is not judged.
        Values are read only where statistics do not prove that a ratio lies between the thresholds;
        they nearly always do. Where values were not saved, such tensors are not judged, but for
        those all of whose statistics are equal to the last bit: their ratio is zero. The memory
        holds the numbers of at most 128 steps; of more, every second one is forgotten.

    Parameters:
        num_steps: Steps over which the change is measured; from the saved step before if not given.
        large_threshold: Ratio above which an update is too large.
        small_threshold: Ratio below which an update is too small.
        epsilon: What is added to the size of the weights, so that it is never zero.

    What to try:
        Too large: a smaller learning rate, a warm-up, gradient clipping. Too small: a larger
        learning rate; check that the optimiser has the parameter.
    """

    num_steps: Annotated[int | None, AtLeast(1), Unit("steps")] = None
    large_threshold: Annotated[float, GreaterThan(0), Unit("update / weight")] = 10.0
    small_threshold: Annotated[float, AtLeast(0), Unit("update / weight")] = 1e-8
    epsilon: Annotated[float, GreaterThan(0), Unit("weight")] = 1e-9

    collections = (CollectionConfig("weights", {"save_interval": "500"}),)

    def requires(self) -> tuple[CollectionConfig, ...]:
        """Return the weights with their values."""
        parameters = {**self.collections[0].parameters, "save_raw_tensor": "True"}
        return (CollectionConfig("weights", parameters),)

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Compare the weights of the step with those of the reference step.

        Args:
            step: What was saved at the step.
            memory: `mode` judged, and `points`, the steps that had weights; see `PointHistory`.
        """
        mode = step.mode.name
        if not is_training(step) or (mode == "GLOBAL" and memory.get("mode") == "TRAIN"):
            return NotApplicable(f"steps of mode {mode} are not judged")
        rows = step.tensors(collections=("weights",))
        if not len(rows):
            return NotEvaluated("no weight was saved")
        points = PointHistory(memory.get("points", {}) if memory.get("mode") == mode else {})
        if len(points) and step.mode_step <= points.steps[-1, 0]:
            points = PointHistory({})  # the counter was set back: another run of the mode
        reference = self._reference(step, points)
        points.append(step.mode_step, step.step, {})
        memory.update(mode=mode, points=points.to_json())
        if reference is None:
            return NotEvaluated("no earlier step with weights is there to compare with")
        return self._judge(step, rows, reference)

    def _reference(self, step: StepView, points: PointHistory) -> StepView | None:
        """Return the step to compare with, and drop those that no comparison needs any more."""
        if not len(points):
            return None
        at = len(points) - 1
        if self.num_steps is not None:
            is_within = points.steps[:, 0] >= step.mode_step - self.num_steps
            at = min(at, int(np.count_nonzero(~is_within)))
        points.drop_before(at)
        number = int(points.steps[0, 1])
        return step.earlier(number) if number < step.step else None

    def _judge(self, step: StepView, rows: TensorRows, reference: StepView) -> Outcome:
        ratio, is_sound = self._ratios(step, rows, reference)
        ratio[(ratio == 0) & self._may_be_frozen(step, rows, ratio, is_sound)] = np.nan
        if (ratio > self.large_threshold).any():
            return IssueFound(self._evidence(step, rows, reference, ratio, is_large=True))
        if (ratio < self.small_threshold).any():
            return IssueFound(self._evidence(step, rows, reference, ratio, is_large=False))
        if is_sound.any() or not np.isnan(ratio).all():
            return Passed()
        return NotEvaluated(_why_none(rows, reference))

    def _ratios(
        self, step: StepView, rows: TensorRows, reference: StepView
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        """Return the ratio of each row [R], NaN if not known, and where it need not be known."""
        others = reference.tensors(collections=("weights",))
        at, there = matched(rows, others)
        now, before = statistics_of(rows.select(at)), statistics_of(others.select(there))
        lower, upper = ratio_bounds(now, before, self.epsilon)
        ratio = np.full(len(rows), np.nan)
        is_sound = np.zeros(len(rows), dtype=np.bool_)
        is_sound[at] = (lower >= self.small_threshold) & (upper <= self.large_threshold)
        is_sound[at] &= lower > 0
        shapes, other_shapes = rows.shapes, others.shapes
        has_same_shape = np.array(
            [shapes[i] == other_shapes[j] for i, j in zip(at, there, strict=True)], dtype=np.bool_
        )
        is_sound[at] &= has_same_shape
        ratio[at[are_identical(now, before, _EXACT) & has_same_shape]] = 0.0
        is_open = np.zeros(len(rows), dtype=np.bool_)
        is_open[at] = ~is_sound[at]
        for worker in step.workers:
            names = {
                rows.names[i]: int(i) for i in np.flatnonzero(is_open) if rows.workers[i] == worker
            }
            for name, value, earlier in value_pairs(step, reference, names, worker):
                is_number = {value.dtype.kind, earlier.dtype.kind} <= set("biuf")
                if is_number and value.shape == earlier.shape:
                    ratio[names[name]] = update_ratio(value, earlier, self.epsilon)
        return ratio, is_sound

    @staticmethod
    def _may_be_frozen(
        step: StepView,
        rows: TensorRows,
        ratio: npt.NDArray[np.float64],
        is_sound: npt.NDArray[np.bool_],
    ) -> npt.NDArray[np.bool_]:
        """Tell which rows may be frozen on purpose, if they did not change [R]."""
        frozen = frozen_rows(step, rows)
        with_gradients = set(step.tensors(collections=("gradients",)).workers)
        is_changed = is_sound | (ratio > 0)
        learning = {rows.workers[at] for at in np.flatnonzero(is_changed)}
        is_told_by_others = np.array(
            [worker not in with_gradients and worker in learning for worker in rows.workers],
            dtype=np.bool_,
        )
        return frozen | is_told_by_others

    def _evidence(
        self,
        step: StepView,
        rows: TensorRows,
        reference: StepView,
        ratio: npt.NDArray[np.float64],
        *,
        is_large: bool,
    ) -> Evidence:
        at = worst(rows, ratio, largest=is_large)
        threshold = self.large_threshold if is_large else self.small_threshold
        sign = ">" if is_large else "<"
        return evidence(
            step,
            rows,
            at,
            measure="update_ratio",
            value=ratio[at],
            threshold=threshold,
            message=(
                f"update / weight {ratio[at]:.3g} {sign} {threshold:g}, since step {reference.step}"
            ),
            remedy=_REMEDY,
        )


def _why_none(rows: TensorRows, reference: StepView) -> str:
    """Return why no weight can be compared with those of the reference step."""
    others = reference.tensors(collections=("weights",))
    at, there = matched(rows, others)
    if not len(at):
        return f"no weight was saved at step {reference.step} too, the one to compare with"
    rows, others = rows.select(at), others.select(there)
    for each, when in ((rows, "now"), (others, f"at step {reference.step}")):
        if are_not_finite(each):
            return f"no weight is finite {when}"
    if not (rows.have_values & others.have_values).any():
        message = f"too little is known of {counted(len(rows), 'saved weight')}"
        return f"{message}: save their values (save_raw_tensor) at each step that is compared"
    why = "all are frozen, of another shape, or too large"
    return f"no weight can be compared with step {reference.step}: {why}"
