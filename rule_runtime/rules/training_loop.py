"""TrainingLoop: mistakes in the training loop."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Annotated, Final, NamedTuple

import numpy as np

from rule_runtime.detectors.streak import streak
from rule_runtime.engine.needs import saved_steps_of_patience
from rule_runtime.engine.outcome import IssueFound, Missing, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, Memory, Rule, Unit
from rule_runtime.engine.selection import saved_every
from rule_runtime.facts.optimizer_steps import largest_count
from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["TrainingLoop"]

_INPUTS: Final = (r"^[A-Z][A-Za-z0-9]*_input_[0-9]+$", r"^inputs(_[0-9]+)?$")
"""Inputs of whole models, and the targets of losses."""
_STATISTICS: Final = ("size", "min", "max", "mean", "std")

_MANY_TIMES: Final = 10
"""Multiple of the longest accumulation, in backward passes, after which a step is missing."""


class _Sign(NamedTuple):
    """A sign of a mistake: measure, value and threshold, finding and remedy."""

    measure: str
    value: float
    threshold: float
    message: str
    remedy: str
    is_bad_below: bool = False

    @property
    def is_bad(self) -> bool:
        is_above = self.value >= self.threshold
        return self.value < self.threshold if self.is_bad_below else is_above


class TrainingLoop(Rule):
    """Detects mistakes in the training loop, such as gradients that are not cleared.

    How it decides:
        The rule reports these after `patience` saved steps in a row:
        * Gradients of the step before were there when the backward pass began.
        * `idle_passes` backward passes ran without an optimizer step.
        * Two batches of validation had a loss in training mode.
        * The learning rate is 0 after it was larger.
        * Gradients are shrunk below `least_share` between `backward()` and `step()`.
        * All ranks of data-parallel training got the same inputs.

    Parameters:
        patience: Saved steps in a row.
        idle_passes: Backward passes without an optimizer step.
        least_share: Smallest share of the gradients' norm that clipping leaves.

    What to try:
        Follow the remedy of the finding: it depends on the mistake.
    """

    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 3
    idle_passes: Annotated[int, AtLeast(1), Unit("backward passes")] = 50
    least_share: Annotated[float, AtLeast(0), Unit("share of the norm")] = 0.001

    collections = saved_every(10, "optimizer_steps", "model_inputs", "loss_inputs", "weights")
    only_training = "there are no optimizer steps in mode {}"

    needs = saved_steps_of_patience

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Check for each mistake.

        Memory: `streaks`, by measure; `rate`, the largest learning rate.
        """
        signs = [*self._signs(step, memory)]
        if not signs:
            raise Missing(
                "no counts of optimizer steps and no inputs of several ranks were saved",
                "use the hook for PyTorch with the collection optimizer_steps",
            )
        streaks = memory.setdefault("streaks", {})
        found = [
            sign
            for sign in signs
            if streak(streaks, is_bad=sign.is_bad, name=sign.measure) >= self.patience
        ]
        if not found:
            return Passed()
        sign = found[0]
        return IssueFound(
            f"{sign.message}, at {streaks[sign.measure]} saved steps in a row",
            measure=sign.measure,
            value=sign.value,
            threshold=sign.threshold,
            remedy=sign.remedy,
        )

    def _signs(self, step: StepView, memory: Memory) -> Iterator[_Sign]:
        left = largest_count(step, "gradients_left")
        if left is not None:
            message = "gradients of the step before are not cleared: those of all steps add up"
            remedy = "Call optimizer.zero_grad() in each step before backward()."
            yield _Sign("gradients_left", left, 1, message, remedy)
        passes = largest_count(step, "backward_passes_since")
        if passes is not None:
            most = largest_count(step, "backward_passes_per_step") or 1
            limit = max(self.idle_passes, _MANY_TIMES * most)
            message = (
                "no weight changes: optimizer.step() was not called for "
                f"{passes:,.0f} backward passes"
            )
            remedy = "Call optimizer.step() after backward(); look for a condition that skips it."
            yield _Sign("backward_passes_since", passes, limit, message, remedy)
        validated = largest_count(step, "validation_passes_in_training_mode")
        if validated is not None:
            message = (
                f"{validated:,.0f} batches of validation ran in training mode: dropout is active, "
                "or batch normalisation learns from validation data"
            )
            remedy = "Call model.eval() before validation and model.train() after it."
            yield _Sign("validation_passes_in_training_mode", validated, 2, message, remedy)
        rate = largest_count(step, "learning_rate")
        if rate is not None:
            highest = memory["rate"] = max(rate, memory.get("rate", 0.0))
            message = f"the learning rate is 0, and was {highest:.3g}: nothing is learned any more"
            remedy = "Fit the number of steps of the scheduler to that of the training."
            is_zero = float(rate == 0 < highest)
            yield _Sign("learning_rate", is_zero, 1, message, remedy)
        norm = largest_count(step, "gradient_norm")
        if norm is not None and norm > 0:
            share = (largest_count(step, "gradient_norm_at_step") or 0.0) / norm
            yield _clipped(norm, share, self.least_share, largest_count(step, "loss_scale"))
        name = _same_on_all_ranks(step)
        if name is not None:
            message = f"{name} is the same on all {len(step.workers)} ranks: they get one batch"
            remedy = "Give each rank its own rows: DistributedSampler, or a seed that has the rank."
            yield _Sign("same_inputs", float(bool(name)), 1, message, remedy)


def _clipped(norm: float, share: float, least: float, scale: float | None) -> _Sign:
    """Return the sign of gradients that are clipped to almost nothing."""
    message = f"the optimizer gets {share:.2g} of the gradients' norm, which was {norm:.3g}"
    remedy = "Raise the limit of gradient clipping above the usual norm."
    if scale is not None and scale > 1:
        message += f": they are clipped while the loss scaler has multiplied them by {scale:,.0f}"
        remedy = "Call scaler.unscale_(optimizer) before clipping."
    return _Sign("clipped", share, least, message, remedy, is_bad_below=True)


def _same_on_all_ranks(step: StepView) -> str | None:
    """Return the name of an input if all ranks got the same, "" if not, None if it is unknown.

    Ranks with different weights work on one batch, as in tensor parallelism. Inputs are the same if
    all their statistics are equal.
    """
    losses = step.tensors(collections=("losses",)).names
    outputs = {f"{name.rpartition('_output_')[0]}_input_0" for name in losses}
    inputs = step.tensors(regex=_INPUTS)
    inputs = inputs.select([name not in outputs for name in inputs.names])
    workers = frozenset(inputs.workers)
    weights = step.tensors(collections=("weights",))
    are_replicas = frozenset(weights.workers) == workers and not _differing(weights, workers)
    pairs = zip(inputs.names, inputs.column("std").tolist(), strict=True)
    judged = sorted({name for name, std in pairs if std > 0})
    if len(workers) < 2 or not are_replicas or not judged:  # noqa: PLR2004 - a single rank
        return None
    return "" if _differing(inputs, workers) else judged[0]


def _differing(rows: TensorRows, workers: frozenset[str]) -> set[str]:
    """Return the tensors that some worker lacks, or that have other statistics on it."""
    table = np.stack([rows.column(name) for name in _STATISTICS], axis=1).tolist()
    seen: dict[str, dict[str, tuple[float, ...]]] = defaultdict(dict)
    for name, worker, numbers in zip(rows.names, rows.workers, table, strict=True):
        seen[name][worker] = tuple(numbers)
    return {name for name, of in seen.items() if of.keys() != workers or len(set(of.values())) > 1}
