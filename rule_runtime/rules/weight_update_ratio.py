"""WeightUpdateRatio and UnchangedTensor: how much tensors change between saved steps."""

from __future__ import annotations

from typing import Annotated, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.engine.findings import finding
from rule_runtime.engine.needs import Needs
from rule_runtime.engine.outcome import Missing, NotApplicable, NotEnough, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, AtMost, GreaterThan, Memory, Rule, Unit
from rule_runtime.engine.selection import SelectedTensorsRule, saved_every
from rule_runtime.facts.missing import required_tensors
from rule_runtime.facts.tensor_changes import TensorPairs, compare, frozen_rows, with_numbers
from rule_runtime.numerics.row_memory import RowMemory
from rule_runtime.numerics.tensor_change import Tolerance, are_identical, ratio_bounds, update_ratio
from rule_runtime.trial.step_view import StepView, TensorRows
from rule_runtime.trial.tensor_rows import worst

__all__ = ["UnchangedTensor", "WeightUpdateRatio"]

_MAX_STEPS: Final = 128
"""Maximum number of possible reference steps; of more, every second one is dropped."""
_SAVE_BOTH: Final = "save their values (save_raw_tensor); frozen and infinite ones do not count"


class WeightUpdateRatio(Rule):
    """Detects weights whose updates are too large or too small for them.

    How it decides:
        The rule compares mean(|w - w_ref|) / (mean(|w|) + `epsilon`) of each weight with both
        thresholds. The ratio covers all steps since w_ref, so the thresholds depend on the saving
        interval. Weights that did not change at all count unless they seem frozen.

    Parameters:
        num_steps: Steps between w_ref and w; by default, w_ref is the previous saved step.
        large_threshold: Ratio above which an update is too large.
        small_threshold: Ratio below which an update is too small.
        epsilon: Added to the magnitude of the weights.

    What to try:
        Too large: lower the learning rate, warm it up, clip gradients. Too small: raise it, check
        that the optimizer has the parameter, and look for vanishing gradients.
    """

    num_steps: Annotated[int | None, AtLeast(1), Unit("steps")] = None
    large_threshold: Annotated[float, GreaterThan(0), Unit("update / weight")] = 10.0
    small_threshold: Annotated[float, AtLeast(0), Unit("update / weight")] = 1e-8
    epsilon: Annotated[float, GreaterThan(0), Unit("weight")] = 1e-9

    collections = saved_every(500, "weights", save_raw_tensor=True)
    only_training = "steps of mode {} are not evaluated"

    def needs(self) -> Needs:
        """Return two steps, because the later is compared with the earlier."""
        return Needs(saved_steps=2)

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Compare the weights of the step with those of the reference step.

        Memory: `mode`: the evaluated mode; `saved`: steps with weights, in the mode and globally.
        """
        if step.mode.name == "GLOBAL" != memory.get("mode", "GLOBAL"):
            return NotApplicable(f"steps of mode {step.mode.name} are not evaluated")
        rows = required_tensors(step, "weights")
        reference = self._reference(step, memory)
        if reference is None:
            raise NotEnough(2, "saved step", 1)
        others = reference.tensors(collections=("weights",))
        pairs = TensorPairs(step, rows, reference, others)
        limits = (self.small_threshold, self.large_threshold)
        ratio, is_normal = _update_ratios(pairs, limits, self.epsilon)
        is_frozen = frozen_rows(step, pairs.rows)
        if not len(step.tensors(collections=("gradients",))):
            is_frozen |= (is_normal | (ratio > 0)).any()
        ratio[(ratio == 0) & is_frozen] = np.nan
        is_large, is_small = (ratio > limits[1]).any(), (ratio < limits[0]).any()
        if is_large or is_small:
            at = worst(pairs.rows, ratio, largest=bool(is_large))
            sign, threshold = (">", limits[1]) if is_large else ("<", limits[0])
            message = f"update / weight {ratio[at]:.3g} {sign} {threshold:g}, since step "
            message += f"{reference.step}"
            measured = ("update_ratio", ratio[at], threshold)
            return finding(self, step, (pairs.rows, at), measured, message)
        if not is_normal.any() and np.isnan(ratio).all():
            reason = f"no weight can be compared with step {reference.step}"
            raise Missing(reason, step.how_to_save(pairs.rows.names, _SAVE_BOTH))
        return Passed()

    def _reference(self, step: StepView, memory: Memory) -> StepView | None:
        """Return the step to compare with, and drop older ones."""
        now, mode = step.mode_step, step.mode.name
        saved: list[list[int]] = memory.get("saved", []) if memory.get("mode") == mode else []
        if saved and now <= saved[-1][0]:
            saved = []  # the counter was reset: another run of the mode
        oldest = now - (self.num_steps or 0)
        candidates = [each for each in saved if each[0] >= oldest] or saved[-1:]
        stored = [*candidates, [now, step.step]]
        memory.update(mode=mode, saved=stored if len(stored) <= _MAX_STEPS else stored[::2])
        is_earlier = bool(candidates) and candidates[0][1] < step.step
        return step.earlier(candidates[0][1]) if is_earlier else None


class UnchangedTensor(SelectedTensorsRule):
    """Detects tensors that do not change over several saved steps.

    How it decides:
        The rule compares each selected tensor with its previous saved training step, by
        numpy.allclose. It reports a tensor that stays close over `num_steps` saved steps. It
        ignores frozen weights. Without saved values it compares statistics.

    Parameters:
        collection_names: Collections to evaluate; required without `tensor_regex`.
        tensor_regex: Regular expressions of further tensors to evaluate.
        num_steps: Number of saved steps over which a tensor must not change.
        rtol: Tolerance relative to the earlier value.
        atol: Absolute tolerance.
        equal_nan: Whether a NaN equals a NaN.

    What to try:
        Check that the optimizer has the parameter, that its learning rate is not zero, that the
        loss depends on it, and that the data loader returns new batches.
    """

    num_steps: Annotated[int, AtLeast(2), AtMost(128), Unit("saved steps")] = 3
    rtol: Annotated[float, AtLeast(0)] = 1e-5
    atol: Annotated[float, AtLeast(0)] = 1e-8
    equal_nan: bool = False

    only_training = "steps of mode {} are not evaluated"
    needs_values = True

    def needs(self) -> Needs:
        """Return `num_steps` saved steps."""
        return Needs(saved_steps=self.num_steps)

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Compare the tensors of the step with those of previous steps.

        Memory: `rows`: previous step and streak of at most 2,048 tensors.
        """
        rows = with_numbers(self.evaluated_tensors(step))
        known = RowMemory(memory, rows.pairs)
        # Fingerprint 0 is not stored, so step n has n + 1.
        is_close, is_different = self._compared(step, rows, known.fingerprints - 1)
        streaks = known.update(is_close, step.step + 1)
        is_unchanged = streaks >= self.num_steps - 1
        is_issue = is_unchanged & ~frozen_rows(step, rows) if is_unchanged.any() else is_unchanged
        if not is_issue.any():
            if not (is_unchanged | is_different).any():
                raise NotEnough(self.num_steps, "saved step", int(streaks.max(initial=0)) + 1)
            return Passed()
        num_others = int(is_issue.sum()) - 1
        message = f"unchanged at the last {self.num_steps} steps that have it"
        message += f"; {num_others} more like it" if num_others else ""
        measured = ("unchanged_steps", self.num_steps, self.num_steps)
        at = worst(rows, np.where(is_issue, 0.0, np.nan), largest=True)
        return finding(self, step, (rows, at), measured, message)

    def _compared(
        self, step: StepView, rows: TensorRows, previous: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        """Return which rows are close to those of their previous step, and which differ [2, R].

        `previous` is -1 for rows without a previous step.
        """
        tolerance = Tolerance(self.rtol, self.atol, self.equal_nan)
        found = np.zeros((2, len(rows)), dtype=np.bool_)
        for number in np.unique(previous[(previous >= 0) & (previous < step.step)]).tolist():
            earlier = step.earlier(number)
            if earlier is not None:
                own = np.flatnonzero(previous == number)
                pairs = TensorPairs(step, rows.select(own), earlier, self.select(earlier))
                found[:, own[pairs.at]] = compare(pairs, tolerance)
        return found


def _update_ratios(
    pairs: TensorPairs, limits: tuple[float, float], epsilon: float
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Return the update ratios of weights, and which are proven normal by statistics [R].

    Ratios that are proven normal, or unknown, are NaN.

    Raises:
        RecordError: If an event file is damaged, or a record longer than 2 GiB.
    """
    lower, upper = ratio_bounds(pairs.now, pairs.before, epsilon)
    can_compare = ~pairs.has_other_shape
    is_normal = can_compare & (lower >= limits[0]) & (lower > 0) & (upper <= limits[1])
    is_equal = can_compare & are_identical(pairs.now, pairs.before) & np.isfinite(lower)
    ratio = np.where(is_equal, 0.0, np.nan)
    for at, value, earlier in pairs.values(can_compare & ~is_normal):
        if {value.dtype.kind, earlier.dtype.kind} <= set("biuf"):
            ratio[at] = update_ratio(value, earlier, epsilon)
    return ratio, is_normal
