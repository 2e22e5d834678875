"""MissingGradient: a weight that never gets a gradient while others do."""

from __future__ import annotations

from collections.abc import Collection
from itertools import compress
from typing import Annotated, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.engine.findings import finding
from rule_runtime.engine.needs import saved_steps_of_patience
from rule_runtime.engine.outcome import Outcome, Passed
from rule_runtime.engine.rule import AtLeast, AtMost, Memory, Regex, Rule, Unit
from rule_runtime.engine.selection import saved_every
from rule_runtime.facts.gradient_names import declared_parameters
from rule_runtime.facts.gradient_stops import stopped_by
from rule_runtime.facts.layers import Layers
from rule_runtime.facts.missing import required_tensors
from rule_runtime.facts.parameters import (
    ENOUGH,
    Gradients,
    is_as_initialised,
    is_normal,
    weight_fingerprints,
)
from rule_runtime.facts.saved_tensors import largest_count
from rule_runtime.facts.zero_gradients import zero_by_construction
from rule_runtime.numerics.row_memory import RowMemory
from rule_runtime.trial.step_view import StepView, TensorRows
from rule_runtime.trial.tensor_rows import worst

__all__ = ["MissingGradient"]

_NO_GRADIENT_AT_ALL: Final = "saved_steps_without_any_gradient"


class MissingGradient(Rule):
    """Detects weights that get no gradient, or one of zero, while others get one.

    How it decides:
        The rule reports a weight after `patience` saved steps in a row in one of these states:
        * Its gradient is exactly zero, and a layer with a gradient is called after its own.
        * It never had a gradient, never changed, and does not look trained before. Its layer is
          called before all layers with a gradient, or `absent_percent` of the weights are like it.
        * It is frozen, looks as initialised, and is called first, without adapters around it.

    Parameters:
        patience: Saved steps in a row without a gradient.
        absent_percent: Share of the weights that must lack a gradient for that to count.
        ignore_regex: Regular expressions of weights to ignore.

    What to try:
        Look for detach(), no_grad(), .data or NumPy between this layer and the loss, for unused
        outputs, dead units and requires_grad=False. If the weight is frozen on purpose, name it in
        ignore_regex.
    """

    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 10
    absent_percent: Annotated[float, AtLeast(0), AtMost(100), Unit("% of the weights")] = 50.0
    ignore_regex: Annotated[tuple[str, ...], Regex()] = ()

    collections = saved_every(
        10, "weights", "gradients", "module_io", "layer_inputs", "optimizer_steps"
    )
    only_training = "in mode {} there are no gradients"
    fatal_measures = (_NO_GRADIENT_AT_ALL,)

    needs = saved_steps_of_patience

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Find weights without a gradient.

        Memory: `rows`: for at most 2,048 weights, the fingerprint of a weight that never had a
        gradient, and the number of consecutive steps without one; see also `_are_new`.
        """
        weights = required_tensors(step, "weights")
        step.fact(Gradients).require()
        sizes = step.fact(Gradients).of(weights)
        known, now = RowMemory(memory, weights.pairs), weight_fingerprints(weights)
        is_new = _are_new(step, weights, memory)
        is_untouched = np.isnan(sizes) & (is_new | (now == known.fingerprints))
        is_bad = self._is_cut_off(step, weights, sizes, is_untouched)
        # Fingerprint 0 means that the weight had a gradient or changed before.
        streaks = known.update(is_bad, np.where(is_untouched, now, 0))
        found = streaks >= self.patience
        if not found.any():
            return Passed()
        at = worst(weights, np.where(found, streaks, np.nan), largest=True)
        what = "a gradient of exactly zero" if sizes[at] == 0 else "no gradient"
        message = f"has had {what} for {streaks[at]} saved steps, as {int(found.sum())} of "
        message += f"{len(weights)} weights"
        measure = _NO_GRADIENT_AT_ALL if found.all() else "saved_steps_without_gradient"
        measured = (measure, int(streaks[at]), self.patience)
        cause = stopped_by(step, weights.names[at], weights.workers[at])
        return finding(self, step, (weights, at), measured, message, stopped_by=cause)

    def _is_cut_off(
        self,
        step: StepView,
        weights: TensorRows,
        sizes: npt.NDArray[np.float64],
        is_untouched: npt.NDArray[np.bool_],
    ) -> npt.NDArray[np.bool_]:
        """Return which weights lack a gradient that they should have [R]."""
        declared, bad = declared_parameters(step), np.zeros(len(weights), dtype=np.bool_)
        # If all parameters of the optimizers have a gradient, the other weights need none.
        is_any_expected = largest_count(step, "parameters_without_gradient") != 0
        is_initial, workers = is_as_initialised(weights), np.array(weights.workers)
        is_small = weights.column("size") < ENOUGH
        layers, unused = step.fact(Layers), step.fact(zero_by_construction)
        for worker in set(weights.workers):
            own = (workers == worker) & (weights.column("size") != 0)
            learning = step.fact(Gradients).learning(worker)
            before, after = layers.before_and_after(worker, learning)
            is_trained = own & _is_in(declared.get(worker, weights.names), weights)
            is_absent = is_untouched & is_trained & is_any_expected & (is_initial | is_small)
            share = 100 * np.count_nonzero(is_absent) / max(np.count_nonzero(is_trained), 1)
            bad |= is_trained & (sizes == 0) & ~_is_in(after | unused[worker], weights)
            bad |= is_absent & (share >= self.absent_percent)
            if worker in declared:
                bad |= is_absent & _is_in(before, weights)
                frozen = set(compress(weights.names, own & is_untouched & ~is_trained))
                trunk = own & _is_in(layers.frozen_trunk(worker, frozen, learning), weights)
                bad |= trunk & (is_initial | (is_normal(weights) & _has_initial(weights, trunk)))
        ignored = step.tensors(regex=self.ignore_regex).names if self.ignore_regex else ()
        return bad & ~_is_in(ignored, weights)


def _are_new(step: StepView, weights: TensorRows, memory: Memory) -> npt.NDArray[np.bool_]:
    """Return which weights no earlier step had [R]: models may be called later than others.

    Memory: `num`, the most weights of a step; `step`, the latest one.
    """
    is_first, most = "rows" not in memory, memory.get("num", len(weights))
    before = None if is_first or len(weights) <= most else step.earlier(memory["step"])
    memory["num"], memory["step"] = max(most, len(weights)), step.step
    if before is None:
        return np.full(len(weights), is_first)
    known = {*before.tensors(collections=("weights",)).pairs}
    return np.array([pair not in known for pair in weights.pairs])


def _is_in(names: Collection[str], weights: TensorRows) -> npt.NDArray[np.bool_]:
    """Return which weights have one of the given names [R]."""
    return np.isin(weights.names, list(names))


def _has_initial(weights: TensorRows, trunk: npt.NDArray[np.bool_]) -> bool:
    """Return whether layers [R] have vectors, all still constant, as of new normalisations."""
    is_vector = trunk & np.array([len(shape or ()) == 1 for shape in weights.shapes])
    is_constant = weights.column("min") == weights.column("max")
    return bool(is_vector.any() and is_constant[is_vector].all())
