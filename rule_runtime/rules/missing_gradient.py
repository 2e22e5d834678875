"""MissingGradient: a weight that never gets a gradient while others do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import IssueFound, NotApplicable, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, AtMost, Memory, Regex, Rule, Unit
from rule_runtime.facts.called_layers import adapts_frozen, are_cut_off, count_later
from rule_runtime.facts.gradient_names import UNTOLD, declared_parameters, parameters_of
from rule_runtime.facts.initial_weights import as_initialised
from rule_runtime.facts.linear_layers import MODULE_IO
from rule_runtime.facts.missing_reasons import why_no_gradient
from rule_runtime.facts.optimizer_steps import OPTIMIZER_STEPS, largest_count
from rule_runtime.facts.selection import evidence, is_training, worst
from rule_runtime.numerics.row_memory import RowMemory, fingerprints, row_keys

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["MissingGradient"]

_PRINTED: Final = ("min", "max", "mean", "l1", "l2")
_TRAINED: Final = 0
_REMEDY: Final = (
    "Look for detach(), no_grad(), .data or a conversion to numpy between this layer and the loss, "
    "for an output that is not used, for dead units behind it, and for a requires_grad that is "
    "off; if it is frozen or unused on purpose, name it in ignore_regex."
)


class MissingGradient(Rule):
    """Finds weights that get no gradient, or one of zero, while others get one.

    How it decides:
        At each training step in which some gradient is not zero, each tensor of the collection
        `weights` is looked at, and its gradient. It fires for one that had none, or only zeros, at
        `patience` saved steps in a row. A gradient of zeros counts, unless it is of a part of the
        model whose loss is multiplied by 0 at first, as an adversary's. Such a part ends with the
        layer that is called last, or with one whose output a loss compares or the model returns
        while no layer with a gradient takes it. There all gradients are zero, that of the bias, or
        of a weight whose input is not zero; and what is made of its output is not all one number,
        as behind dead units. From training step 100,000 on zeros count there, too. None at all
        counts only for weights that do not change in a single bit (minimum, maximum, mean, l1 and
        l2), for others are trained in a phase that was not saved; and only where at least
        `absent_percent` of the worker's weights have none, for a few may be frozen. Where the
        worker's collections file names the gradients that are to come, a weight that is not among
        them is frozen on purpose, and left out, unless it looks exactly as PyTorch or Keras
        initialise it (uniform, up to both ends of that distribution) and does not change: what was
        never trained was frozen too early. Not so where most weights are frozen and something is
        trained ahead of them, as adapters (LoRA), biases or prompts are. A weight without any
        gradient is left out, too, if each parameter that the optimizers hold has one. A weight that
        had a gradient before, and has none now, is left out, too: it was frozen when it was good
        enough. And if that of the layer that is called first is among them and has none, it counts
        however few there are: what is cut off from the loss is cut off from its beginning on, while
        layers that are not used come later. So do weights of a later layer that is called ahead of
        others with gradients, if none of them has one, and one of them is as PyTorch or Keras
        initialise it. Where the file does not, whoever freezes most of a model names it in
        `ignore_regex`. Of more than 2,048 weights, of all workers together, as many are followed.

    Parameters:
        patience: Saved steps in a row without a gradient.
        absent_percent: Share of the weights that must lack a gradient for that to count.
        ignore_regex: Regular expressions of weights that are frozen on purpose.

    What to try:
        Look for detach(), no_grad() and .data ahead of the loss, for layers that are not called, or
        whose output is not used, and for dead units.
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
            memory: `rows`: fingerprints of at most 2,048 weights, 0 for those that had a gradient
                before, and for how many saved steps each had none.
        """
        if not is_training(step):
            return NotApplicable(f"in mode {step.mode.name} there are no gradients")
        weights = step.tensors(collections=("weights",))
        if not len(weights):
            return NotEvaluated("no tensor of the collection weights was saved")
        gradients = step.tensors(collections=("gradients",))
        size = gradients.column("l2")
        if not (size > 0).any():
            unknown = why_no_gradient(gradients, ("l2",))
            return NotEvaluated(unknown or "all gradients that are known are zero")
        owners = parameters_of(step, gradients)
        if not any(owners):
            return NotEvaluated(UNTOLD)
        keys = row_keys(weights.names, weights.workers)
        rows = RowMemory(memory.get("rows", ""))
        prints = fingerprints([weights.column(name) for name in _PRINTED])
        known = rows.known(keys)
        prints[_was_trained(known, keys, weights, gradients, owners)] = _TRAINED
        excused = _moved(known, keys, prints) | (prints == _TRAINED)
        bad = self._is_bad(step, weights, gradients, excused)
        streaks = rows.update(keys, prints, bad)
        memory["rows"] = rows.to_json()
        found = streaks >= self.patience
        if not found.any():
            return Passed()
        at = worst(weights, np.where(found, streaks, np.nan), largest=True)
        count = int(streaks[at])
        its_own = (weights.names[at], weights.workers[at])
        has_one = its_own in zip(owners, gradients.workers, strict=True)
        what = "a gradient of exactly zero" if has_one else "no gradient"
        return IssueFound(
            evidence(
                step,
                weights,
                at,
                measure="saved_steps_without_gradient",
                value=count,
                threshold=self.patience,
                message=(
                    f"has had {what} for {count} saved steps, as {int(found.sum())} of "
                    f"{len(weights)} weights"
                ),
                remedy=_REMEDY,
            )
        )

    def _is_bad(
        self,
        step: StepView,
        weights: TensorRows,
        gradients: TensorRows,
        excused: npt.NDArray[np.bool_],
    ) -> npt.NDArray[np.bool_]:
        """Tell of each weight whether it has no gradient, or one of zero, though it should."""
        # A gradient without finite elements is there all the same: NaN is no zero.
        owners = zip(parameters_of(step, gradients), gradients.workers, strict=True)
        size = np.where(count_later(step, gradients), np.nan, gradients.column("l2"))
        sizes: dict[tuple[str, str], float] = {}
        for pair, its_size in zip(owners, size.tolist(), strict=True):
            sizes[pair] = sizes.get(pair) or its_size  # with several optimisers there are several
        found = [sizes.get(pair) for pair in zip(weights.names, weights.workers, strict=True)]
        none = np.array([size is None for size in found], dtype=bool)
        declares = declared_parameters(step)
        is_frozen = _is_frozen(weights, declares)
        judged = ~self._is_ignored(step, weights) & ~(weights.column("size") == 0)
        never_trained = none & is_frozen & judged & as_initialised(weights)
        judged &= ~is_frozen
        absent = none & judged
        if largest_count(step, "parameters_without_gradient") == 0:
            absent[:] = False  # no optimizer waits for these: they are not trained on purpose
        zero = np.array([size == 0 for size in found], dtype=bool) & judged
        for worker in set(weights.workers):
            all_of = np.array([at == worker for at in weights.workers], dtype=bool)
            own = judged & all_of
            if adapts_frozen(step, weights, all_of & is_frozen, all_of):
                never_trained &= ~all_of
            few = 100 * np.count_nonzero(absent & own) < self.absent_percent * np.count_nonzero(own)
            is_known = worker in declares and (absent & own).any()
            if few and is_known:
                absent &= ~own | are_cut_off(step, weights, absent & own, own)
            elif few:
                absent &= ~own
        bad: npt.NDArray[np.bool_] = ((absent | never_trained) & ~excused) | zero
        return bad

    def _is_ignored(self, step: StepView, weights: TensorRows) -> npt.NDArray[np.bool_]:
        """Tell which weights are frozen on purpose by the rule's parameters."""
        ignored = step.tensors(regex=self.ignore_regex).names if self.ignore_regex else ()
        return np.isin(weights.names, ignored)


def _is_frozen(
    weights: TensorRows, declares: Mapping[str, frozenset[str]]
) -> npt.NDArray[np.bool_]:
    """Tell which weights are to have no gradient, where the file names those to come."""
    return np.array(
        [
            worker in declares and name not in declares[worker]
            for name, worker in zip(weights.names, weights.workers, strict=True)
        ],
        dtype=bool,
    )


def _was_trained(
    known: Mapping[int, tuple[int, int]],
    keys: npt.NDArray[np.uint32],
    weights: TensorRows,
    gradients: TensorRows,
    owners: tuple[str, ...],
) -> npt.NDArray[np.bool_]:
    """Tell which weights [R] have a gradient now, or had one at a saved step before."""
    before = [known.get(key, (None, 0))[0] == _TRAINED for key in keys.tolist()]
    named = zip(owners, gradients.workers, gradients.column("l2"), strict=True)
    arrived = {(name, worker) for name, worker, size in named if size > 0}
    now = [pair in arrived for pair in zip(weights.names, weights.workers, strict=True)]
    return np.array([a or b for a, b in zip(before, now, strict=True)], dtype=bool)


def _moved(
    known: Mapping[int, tuple[int, int]],
    keys: npt.NDArray[np.uint32],
    prints: npt.NDArray[np.uint32],
) -> npt.NDArray[np.bool_]:
    """Tell which weights [R] are not what they were at the saved step before."""
    now = zip(keys.tolist(), prints.tolist(), strict=True)
    return np.array([known.get(key, (mark, 0))[0] != mark for key, mark in now], dtype=bool)
