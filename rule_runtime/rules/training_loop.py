"""TrainingLoop: mistakes in the training loop."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Annotated, Final

import numpy as np

from rule_runtime.detectors.streak import streak
from rule_runtime.engine.findings import Mistake
from rule_runtime.engine.needs import saved_steps_of_patience
from rule_runtime.engine.outcome import IssueFound, Missing, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, Memory, Rule, Unit
from rule_runtime.engine.selection import saved_every
from rule_runtime.facts.saved_tensors import largest_count
from rule_runtime.facts.tensor_changes import since_previous_step
from rule_runtime.numerics.tensor_change import are_identical
from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["TrainingLoop"]

_INPUTS: Final = (r"^[A-Z][A-Za-z0-9]*_input_[0-9]+$", r"^inputs(_[0-9]+)?$")
"""Inputs of whole models, and the targets of losses."""
_STATISTICS: Final = ("size", "min", "max", "mean", "std")

_ADVICE: Final = "clipped_strongly"
_MANY_TIMES: Final = 10
"""Multiple of the longest accumulation after which a step is missing, of `patience` for advice."""
_SAME_NORM: Final = 0.01
"""Relative difference below which norms are the same."""
_CLIPPED: Final = Mistake(
    "the optimizer gets gradients of norm {:.2g}, which was {:.3g} after the backward pass",
    "Raise the limit of gradient clipping above the usual norm.",
)

_MISTAKES: Final = {
    "gradients_left": Mistake(
        "gradients of the step before are not cleared: those of all steps add up",
        "Call optimizer.zero_grad() in each step before backward().",
    ),
    "backward_passes_since": Mistake(
        "no weight changes: optimizer.step() was not called for {:,.0f} backward passes",
        "Call optimizer.step() after backward(); look for a condition that skips it.",
    ),
    "validation_passes_in_training_mode": Mistake(
        "{:,.0f} batches of validation ran in training mode: dropout is active, or batch "
        "normalisation learns from validation data",
        "Call model.eval() before validation and model.train() after it.",
    ),
    "learning_rate": Mistake(
        "the learning rate is 0, and was {:.3g}: nothing is learned any more",
        "Fit the number of steps of the scheduler to that of the training.",
    ),
    "all_frozen": Mistake(
        "no weight changes: all weights of the model are frozen",
        "Set trainable = True for the layers to train, before the first step.",
    ),
    "clipped": _CLIPPED,
    _ADVICE: _CLIPPED,
    "clipped_while_scaled": Mistake(
        "the optimizer gets gradients of norm {:.2g}, which was {:.3g} after the backward pass: "
        "they are clipped while the loss scaler has multiplied them by {:,.0f}",
        "Call scaler.unscale_(optimizer) before clipping.",
    ),
    "same_inputs": Mistake(
        "{} is the same on all {} ranks: they get one batch",
        "Give each rank its own rows: DistributedSampler, or a seed that has the rank.",
    ),
}
"""Finding and remedy by measure."""


class TrainingLoop(Rule):
    """Detects mistakes in the training loop, such as gradients that are not cleared.

    How it decides:
        The rule reports these after `patience` saved steps in a row:
        * Gradients are not cleared before the backward pass.
        * `idle_passes` backward passes ran without an optimizer step.
        * Two batches of validation had a loss in training mode.
        * The learning rate is 0 after it was larger.
        * All weights of a Keras model are frozen, and none changes.
        * Gradients shrink `max_reduction` times between `backward()` and `step()`. A reduction of
          `usual_reduction` times to the same norm, ten times as long, is advice.
        * All data-parallel ranks got the same inputs.

    Parameters:
        patience: Saved steps in a row.
        idle_passes: Backward passes without an optimizer step.
        max_reduction: Reduction of the gradients' norm by clipping.
        usual_reduction: Reduction from which constant clipping is advised against.

    What to try:
        Follow the remedy of the finding: it depends on the mistake.
    """

    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 3
    idle_passes: Annotated[int, AtLeast(1), Unit("backward passes")] = 50
    max_reduction: Annotated[float, AtLeast(1), Unit("times")] = 1000
    usual_reduction: Annotated[float, AtLeast(1), Unit("times")] = 20

    collections = saved_every(10, "optimizer_steps", "model_inputs", "loss_inputs", "weights")
    only_training = "there are no optimizer steps in mode {}"
    fatal_measures = ("backward_passes_since", "all_frozen")

    needs = saved_steps_of_patience

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Check for each mistake.

        Memory: `streaks`, by measure; `rate`, the largest learning rate; `norm`, that of the
        latest gradients that an optimizer got; the state of `since_previous_step`.
        """
        measured = [*self._measured(step, memory)]
        if not measured:
            raise Missing(
                "no counts of optimizer steps and no inputs of several ranks were saved",
                "use the hook for PyTorch with the collection optimizer_steps",
            )
        streaks, found, advice = memory.setdefault("streaks", {}), [], ""
        for measure, value, limit, shown in measured:
            factor = _MANY_TIMES if measure == _ADVICE else 1
            num = streak(streaks, is_bad=value >= limit, name=measure)
            if num < factor * self.patience:
                continue
            message, remedy = _MISTAKES[measure]
            text = f"{message.format(*shown)}, at {num} saved steps in a row"
            if measure == _ADVICE:
                advice = f"{text}. {remedy}"
                continue
            one = IssueFound(text, measure=measure, value=value, threshold=limit, remedy=remedy)
            found.append(one)
        return found[0] if found else Passed(advice)

    def _measured(
        self, step: StepView, memory: Memory
    ) -> Iterator[tuple[str, float, float, tuple[object, ...]]]:
        """Yield measure, value and limit of each mistake, and what its finding shows."""
        most = largest_count(step, "backward_passes_per_step") or 1
        limits = {
            "gradients_left": 1,
            "backward_passes_since": max(self.idle_passes, _MANY_TIMES * most),
            "validation_passes_in_training_mode": 2,
        }
        for measure, limit in limits.items():
            count = largest_count(step, measure)
            if count is not None:
                yield measure, count, limit, (count,)
        rate = largest_count(step, "learning_rate")
        if rate is not None:
            highest = memory["rate"] = max(rate, memory.get("rate", 0.0))
            yield "learning_rate", float(rate == 0 < highest), 1, (highest,)
        if largest_count(step, "all_frozen"):
            yield "all_frozen", float(_are_weights_same(step, memory)), 1, ()
        norm = largest_count(step, "gradient_norm")
        if norm is not None and norm > 0:
            at_step = largest_count(step, "gradient_norm_at_step") or 0.0
            scale = largest_count(step, "loss_scale") or 1.0
            measure = "clipped_while_scaled" if scale > 1 else "clipped"
            factor = norm / at_step if at_step else math.inf
            # Clipping leaves a fixed norm, a division by a number of tokens does not.
            is_fixed = math.isclose(at_step, memory.get("norm", at_step), rel_tol=_SAME_NORM)
            memory["norm"] = at_step
            value = factor if is_fixed else 1.0
            yield measure, value, self.max_reduction, (at_step, norm, scale)
            yield _ADVICE, value, self.usual_reduction, (at_step, norm)
        name = _same_on_all_ranks(step)
        if name is not None:
            yield "same_inputs", float(bool(name)), 1, (name, len(step.workers))


def _are_weights_same(step: StepView, memory: Memory) -> bool:
    """Return whether no weight changed since the saved step before; False if it is unknown."""
    try:
        pairs = since_previous_step(step, ("weights",), memory)
    except Missing:
        return False
    return bool(len(pairs.rows) and are_identical(pairs.now, pairs.before).all())


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
