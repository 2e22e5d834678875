"""WeightUpdateRatio: detects updates that are too large or too small for the weights."""

from __future__ import annotations

from typing import Annotated, Final

import numpy as np

from rule_runtime.engine.needs import Needs
from rule_runtime.engine.outcome import Missing, NotApplicable, NotEnough, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, GreaterThan, Memory, Rule, Unit
from rule_runtime.facts.selection import finding, is_training, saved_every, worst
from rule_runtime.facts.tensor_changes import TensorPairs, frozen_rows, update_ratios
from rule_runtime.trial.step_view import StepView

__all__ = ["WeightUpdateRatio"]

_MAX_STEPS: Final = 128
"""Maximum number of possible reference steps; of more, every second one is dropped."""


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
        Too large: lower the learning rate, warm it up, clip gradients. Too small: raise the
        learning rate, check that it is not zero and that the optimizer has the parameter, and look
        for vanishing gradients.
    """

    num_steps: Annotated[int | None, AtLeast(1), Unit("steps")] = None
    large_threshold: Annotated[float, GreaterThan(0), Unit("update / weight")] = 10.0
    small_threshold: Annotated[float, AtLeast(0), Unit("update / weight")] = 1e-8
    epsilon: Annotated[float, GreaterThan(0), Unit("weight")] = 1e-9

    collections = saved_every(500, "weights", save_raw_tensor=True)

    def needs(self) -> Needs:
        """Return two steps, because the later is compared with the earlier."""
        return Needs(saved_steps=2)

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Compare the weights of the step with those of the reference step.

        Memory: `mode`: the evaluated mode; `saved`: steps with weights, in the mode and globally.
        """
        if not is_training(step) or step.mode.name == "GLOBAL" != memory.get("mode", "GLOBAL"):
            return NotApplicable(f"steps of mode {step.mode.name} are not evaluated")
        rows = step.tensors(collections=("weights",))
        if not len(rows):
            raise Missing("no weight was saved")
        reference = self._reference(step, memory)
        if reference is None:
            raise NotEnough(2, "saved step", 1)
        others = reference.tensors(collections=("weights",))
        pairs = TensorPairs(step, rows, reference, others)
        limits = (self.small_threshold, self.large_threshold)
        ratio, is_normal = update_ratios(pairs, limits, self.epsilon)
        is_frozen = frozen_rows(step, pairs.rows)
        if not len(step.tensors(collections=("gradients",))):
            is_frozen |= (is_normal | (ratio > 0)).any()
        ratio[(ratio == 0) & is_frozen] = np.nan
        is_large, is_small = (ratio > limits[1]).any(), (ratio < limits[0]).any()
        if is_large or is_small:
            at = worst(pairs.rows, ratio, largest=bool(is_large))
            sign, threshold = (">", limits[1]) if is_large else ("<", limits[0])
            message = f"update / weight {ratio[at]:.3g} {sign} {threshold:g}"
            message = f"{message}, since step {reference.step}"
            measured = ("update_ratio", ratio[at], threshold)
            return finding(self, step, (pairs.rows, at), measured, message)
        if not is_normal.any() and np.isnan(ratio).all():
            raise Missing(
                f"no weight can be compared with step {reference.step}: save their values "
                "(save_raw_tensor); frozen and infinite ones do not count"
            )
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
