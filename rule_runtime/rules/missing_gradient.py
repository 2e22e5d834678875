"""MissingGradient: a weight that never gets a gradient while others do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import numpy as np

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import IssueFound, NotApplicable, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, AtMost, Memory, Regex, Rule, Unit
from rule_runtime.facts.gradient_names import declared_parameters
from rule_runtime.facts.layers import MODULE_IO, Layers
from rule_runtime.facts.optimizer_steps import OPTIMIZER_STEPS, largest_count
from rule_runtime.facts.parameters import Gradients, is_fresh, weight_prints
from rule_runtime.facts.selection import evidence, is_training, worst
from rule_runtime.numerics.row_memory import RowMemory, row_keys

if TYPE_CHECKING:
    import numpy.typing as npt

    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["MissingGradient"]

_LEARNED: Final = 0
"""Fingerprint of a weight that had a gradient at this saved step or before."""
_REMEDY: Final = (
    "Look for detach(), no_grad(), .data or NumPy between this layer and the loss, for an output "
    "that is not used, for dead units after the layer, and for requires_grad=False. If the weight "
    "is frozen on purpose, name it in ignore_regex."
)


class MissingGradient(Rule):
    """Detects weights that get no gradient, or one of zero, while others get one.

    How it decides:
        A weight is reported after `patience` saved steps in a row without a gradient:

        * Its gradient is exactly zero, and its layer is not called after the last layer that has
          a gradient.
        * It has no gradient, never had one and does not change, and at least `absent_percent` of
          the weights are so, or a later layer has a gradient while this one is the first or looks
          as initialised.
        * It was frozen while it looks as initialised, and nothing before it learns.

    Parameters:
        patience: Saved steps in a row without a gradient.
        absent_percent: Share of the weights that must lack a gradient for that to count.
        ignore_regex: Regular expressions of weights that are frozen on purpose.

    What to try:
        Look for detach(), no_grad() and .data before the loss, for layers whose output is not
        used, and for dead units.
    """

    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 10
    absent_percent: Annotated[float, AtLeast(0), AtMost(100), Unit("% of the weights")] = 50.0
    ignore_regex: Annotated[tuple[str, ...], Regex()] = ()

    collections = (
        CollectionConfig("weights", {"save_interval": "10"}),
        CollectionConfig("gradients", {"save_interval": "10"}),
        MODULE_IO,
        OPTIMIZER_STEPS,
    )

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Look for weights without a gradient.

        Args:
            step: What was saved at the step.
            memory: `rows`: fingerprints of at most 2,048 weights, 0 for those that had a gradient,
                and for how many saved steps each had none.
        """
        if not is_training(step):
            return NotApplicable(f"in mode {step.mode.name} there are no gradients")
        weights = step.tensors(collections=("weights",))
        if not len(weights):
            return NotEvaluated("no tensor of the collection weights was saved")
        gradients = step.fact(Gradients)
        gradients.require()
        sizes = gradients.of(weights)
        keys = row_keys(weights.names, weights.workers)
        rows = RowMemory(memory.get("rows", ""))
        known = rows.known(keys)
        now = weight_prints(weights)
        pairs = zip(keys.tolist(), now.tolist(), strict=True)
        before = np.array([known.get(key, (print_, 0))[0] for key, print_ in pairs])
        prints = np.where((sizes > 0) | (before == _LEARNED), _LEARNED, now)
        is_still = (prints == before) & (prints != _LEARNED)
        bad = self._is_bad(step, weights, sizes, is_still) & ~self._is_ignored(step, weights)
        streaks = rows.update(keys, prints.astype(np.uint32), bad)
        memory["rows"] = rows.to_json()
        found = streaks >= self.patience
        if not found.any():
            return Passed()
        at = worst(weights, np.where(found, streaks, np.nan), largest=True)
        what = "a gradient of exactly zero" if sizes[at] == 0 else "no gradient"
        return IssueFound(
            evidence(
                step,
                weights,
                at,
                measure="saved_steps_without_gradient",
                value=int(streaks[at]),
                threshold=self.patience,
                message=(
                    f"has had {what} for {streaks[at]} saved steps, as {int(found.sum())} of "
                    f"{len(weights)} weights"
                ),
                remedy=_REMEDY,
            )
        )

    def _is_bad(
        self,
        step: StepView,
        weights: TensorRows,
        sizes: npt.NDArray[np.float64],
        is_still: npt.NDArray[np.bool_],
    ) -> npt.NDArray[np.bool_]:
        """Tell which weights lack a gradient that they should have [R]."""
        declares, bad = declared_parameters(step), np.zeros(len(weights), dtype=bool)
        is_unasked = largest_count(step, "parameters_without_gradient") == 0
        fresh, names, workers = (
            is_fresh(weights),
            np.array(weights.names),
            np.array(weights.workers),
        )
        for worker in set(weights.workers):
            flow = step.fact(Layers).flow(worker, step.fact(Gradients).learning(worker))
            own = (workers == worker) & (weights.column("size") != 0)
            declared = declares.get(worker)
            is_frozen = own & (declared is not None) & ~np.isin(names, list(declared or ()))
            judged = own & ~is_frozen
            bad |= judged & (sizes == 0) & ~np.isin(names, list(flow.tail))
            absent = judged & np.isnan(sizes) & (not is_unasked)
            share = 100 * np.count_nonzero(absent) / max(np.count_nonzero(judged), 1)
            if share < self.absent_percent:
                is_cut_off = np.isin(names, list(flow.upstream)) & (declared is not None)
                absent &= is_cut_off & (fresh | np.isin(names, list(flow.first)))
            bad |= (absent | (is_frozen & fresh & (not flow.is_mixed))) & is_still
        return bad

    def _is_ignored(self, step: StepView, weights: TensorRows) -> npt.NDArray[np.bool_]:
        """Tell which weights are frozen on purpose by the rule's parameters [R]."""
        ignored = step.tensors(regex=self.ignore_regex).names if self.ignore_regex else ()
        return np.isin(weights.names, ignored)
