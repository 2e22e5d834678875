"""WeightUpdateRatio: updates that are too large or too small for the weights they change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import numpy as np

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import (
    IssueFound,
    Missing,
    NotApplicable,
    NotEvaluated,
    Outcome,
    Passed,
)
from rule_runtime.engine.rule import AtLeast, GreaterThan, Memory, Rule, Unit
from rule_runtime.facts.selection import evidence, is_training, worst
from rule_runtime.facts.update_ratios import UpdateRatios, update_ratios, why_no_ratio

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["WeightUpdateRatio"]

_MAX_STEPS: Final = 128
"""Saved steps that may become a reference step; of more, every second one is forgotten."""

_REMEDY: Final = (
    "Too large: lower the learning rate, warm it up, clip gradients. Too small: raise the learning "
    "rate, check that it is not zero and that the optimizer has the parameter, and look for "
    "vanishing gradients."
)


class WeightUpdateRatio(Rule):
    """Detects weights whose updates are too large or too small for them.

    How it decides:
        The ratio mean(|w - w_ref|) / (mean(|w|) + `epsilon`) of each weight is compared with the
        thresholds. It is not divided by the steps between, so the thresholds depend on the saving
        interval. Weights that did not change at all are reported only if they have a gradient.

    Parameters:
        num_steps: Steps over which the change is measured; from the saved step before if not given.
        large_threshold: Ratio above which an update is too large.
        small_threshold: Ratio below which an update is too small.
        epsilon: What is added to the size of the weights.

    What to try:
        Too large: a smaller learning rate, a warm-up, gradient clipping. Too small: a larger
        learning rate; check that the optimizer has the parameter.
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
            memory: `mode` judged, and `saved`: steps that had weights, in the mode and globally.

        Raises:
            Missing: No weight was saved.
        """
        mode = step.mode.name
        if not is_training(step) or (mode == "GLOBAL" and memory.get("mode") == "TRAIN"):
            return NotApplicable(f"steps of mode {mode} are not judged")
        rows = step.tensors(collections=("weights",))
        if not len(rows):
            raise Missing("no weight was saved")
        reference = self._reference(step, memory)
        if reference is None:
            return NotEvaluated("no earlier step with weights was saved to compare with")
        limits = (self.small_threshold, self.large_threshold, self.epsilon)
        ratios = update_ratios(step, rows, reference, limits)
        if (ratios.ratio > self.large_threshold).any():
            return self._found(step, rows, reference, ratios, is_large=True)
        if (ratios.ratio < self.small_threshold).any():
            return self._found(step, rows, reference, ratios, is_large=False)
        if ratios.is_within.any() or not np.isnan(ratios.ratio).all():
            return Passed()
        return NotEvaluated(why_no_ratio(rows, reference))

    def _reference(self, step: StepView, memory: Memory) -> StepView | None:
        """Return the step to compare with, and forget those that no comparison needs any more."""
        now, mode = step.mode_step, step.mode.name
        saved: list[list[int]] = memory.get("saved", []) if memory.get("mode") == mode else []
        if saved and now <= saved[-1][0]:
            saved = []  # the counter was set back: another run of the mode
        oldest = now - (self.num_steps or 0)
        candidates = [each for each in saved if each[0] >= oldest] or saved[-1:]
        kept = [*candidates, [now, step.step]]
        if len(kept) > _MAX_STEPS:
            kept = [*kept[:-1:2], kept[-1]]
        memory.update(mode=mode, saved=kept)
        is_earlier = bool(candidates) and candidates[0][1] < step.step
        return step.earlier(candidates[0][1]) if is_earlier else None

    def _found(
        self,
        step: StepView,
        rows: TensorRows,
        reference: StepView,
        ratios: UpdateRatios,
        *,
        is_large: bool,
    ) -> IssueFound:
        at = worst(rows, ratios.ratio, largest=is_large)
        value = ratios.ratio[at]
        threshold = self.large_threshold if is_large else self.small_threshold
        sign = ">" if is_large else "<"
        return IssueFound(
            evidence(
                step,
                rows,
                at,
                measure="update_ratio",
                value=value,
                threshold=threshold,
                message=f"update / weight {value:.3g} {sign} {threshold:g}, since step "
                f"{reference.step}",
                remedy=_REMEDY,
            )
        )
