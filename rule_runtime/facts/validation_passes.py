"""Mean losses of validation passes, and of the training before each pass.

A validation pass consists of the EVAL steps between two training steps. XGBoost saves both losses
of a round at the same step, so each round is a pass.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any, Final, NamedTuple

import numpy as np

from hook_layer.format.modes import ModeKeys
from hook_layer.frameworks import FALLING_METRIC
from rule_runtime.engine.needs import FINISHED_VALIDATION
from rule_runtime.engine.outcome import Missing, NotEnough
from rule_runtime.engine.rule import Memory
from rule_runtime.facts.baseline import LossTargets, labels_of_trees, targets_of
from rule_runtime.facts.framework import advice_of
from rule_runtime.facts.missing import missing_counted_loss, missing_loss
from rule_runtime.facts.saved_tensors import declared, finite_means
from rule_runtime.facts.training_losses import loss_sides
from rule_runtime.numerics.series_memory import MAX_SERIES
from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["SETTLED_STEPS", "ValidationPass", "has_unsettled_averages", "validation_passes"]

SETTLED_STEPS: Final = 500
"""Steps after which moving averages with 1 % per step are accurate to 0.7 %."""
_AVERAGES: Final = ("moving_mean", "moving_variance")

_NUM_FIRST: Final = 5
"""Number of first training losses; their median is the start loss."""


class ValidationPass(NamedTuple):
    """A finished validation pass of one loss of one worker.

    Attributes:
        validation: Mean validation loss of the pass.
        training: Mean training loss since the previous pass.
        start: Training loss at the start.
        training_step: Number of the latest training step, in its mode.
        targets: Targets of the first pass with saved targets at all steps; None if unknown.
        notes: The rule's memory of this loss, changed in place.
    """

    loss: str
    worker: str
    validation: float
    training: float
    start: float
    training_step: int
    targets: LossTargets | None
    notes: dict[str, Any]


class _Loss(NamedTuple):
    """A loss of the step; a training loss and its validation losses share a key."""

    worker: str
    key: str
    name: str
    is_training: bool
    value: float


def validation_passes(
    step: StepView,
    memory: Memory,
    tensor_regex: tuple[str, ...] = (),
    *,
    with_targets: bool = False,
) -> list[ValidationPass]:
    """Add the losses of a step; return the validation passes that it finishes.

    A pass is finished when training continues, or when it is as long as the previous pass;
    otherwise the last pass of a run would be lost.

    By default, the losses are those of the collection `losses`.

    Memory: `losses`, at most 32 validation losses.

    Raises:
        Missing: If the step has no finite loss, or the run no training or no validation loss yet.
        NotEnough: If no validation pass is finished yet.
    """
    stored: dict[str, dict[str, Any]] = memory.setdefault("losses", {})
    rows = step.tensors(collections=() if tensor_regex else ("losses",), regex=tensor_regex)
    has_no_loss = not len(rows) and step.mode is ModeKeys.EVAL and bool(stored)
    losses = [] if has_no_loss else _losses_of(step, rows)
    finished = []
    for (worker, key), group in groupby(losses, key=lambda loss: (loss.worker, loss.key)):
        name = f"{worker}/{key}"
        if name in stored or len(stored) < MAX_SERIES:
            curves = stored.setdefault(name, {"first": [], "training": [0.0, 0], "passes": {}})
            num_others = sum(len(of["passes"]) for of in stored.values() if of is not curves)
            finished += _Curves(curves, worker).add(
                step, list(group), MAX_SERIES - num_others, with_targets=with_targets
            )
    if not finished:
        _require_both(step, stored)
    return finished


def _losses_of(step: StepView, rows: TensorRows) -> list[_Loss]:
    """Return the finite losses of a step, grouped by worker and key."""
    if not len(rows):
        raise missing_loss(step)
    if step.mode is ModeKeys.PREDICT:
        raise Missing("steps of mode PREDICT are not evaluated")
    means = finite_means(rows)
    sides = loss_sides(step, rows)
    found = []
    for at in np.flatnonzero(np.isfinite(means)):
        name, worker, side = rows.names[at], rows.workers[at], sides[at]
        if side.key is not None:
            found.append(_Loss(worker, side.key, name, side.is_training, float(means[at])))
    if not found:
        raise missing_counted_loss(rows, means, f"may not be a loss: {FALLING_METRIC}")
    return sorted(found)


def _require_both(step: StepView, stored: dict[str, dict[str, Any]]) -> None:
    """Raise `Missing` if the run has no validation loss, or no training loss, so far."""
    if not any(curves["passes"] for curves in stored.values()):
        raise Missing("no validation loss was saved", advice_of(step).validation)
    if not any(curves["first"] for curves in stored.values()):
        how = "call model.train() in training (XGBoost: give the training data in `evals`, too)"
        raise Missing("no training loss was saved before this validation", how)
    passes = (one for curves in stored.values() for one in curves["passes"].values())
    if not any(one["previous"] or one["was_returned"] for one in passes):
        raise NotEnough(1, FINISHED_VALIDATION, 0)


class _Curves:
    """The training losses of one worker and key, and their validation losses.

    Args:
        state: JSON state, changed in place: the `first` training losses; `training`, their mean
            since the last pass and its number of losses; the latest training `step`; of each
            validation loss in `passes` the `mean` of the pass, the number of losses of the
            `previous` pass, whether the pass `was_returned`, its `targets`, the `first_targets`
            known, and the `notes` of the rule.
        worker: Name of the worker.
    """

    def __init__(self, state: dict[str, Any], worker: str) -> None:
        self._state = state
        self._passes: dict[str, dict[str, Any]] = state["passes"]
        self._worker = worker

    def add(
        self, step: StepView, losses: list[_Loss], room: int, *, with_targets: bool
    ) -> list[ValidationPass]:
        """Add losses of a step; return the passes that they finish, of at most `room` losses."""
        training = [loss for loss in losses if loss.is_training]
        finished = self._train(step, training) if training else []
        for loss in losses:
            if loss.is_training or (loss.name not in self._passes and len(self._passes) >= room):
                continue
            state = self._passes.setdefault(
                loss.name, {"mean": [0.0, 0], "previous": 0, "was_returned": False, "notes": {}}
            )
            if not self._state["first"]:
                continue
            _add_to_mean(state["mean"], loss.value)
            if with_targets and "first_targets" not in state:
                _add_targets(step, loss, state)
            if training or state["mean"][1] == state["previous"]:
                state["was_returned"] = True
                finished.append(self._finished(loss.name))
        return finished

    def _train(self, step: StepView, losses: list[_Loss]) -> list[ValidationPass]:
        """Add training losses; return the passes that they end."""
        ended = sorted(name for name, state in self._passes.items() if state["mean"][1])
        finished = [self._finished(one) for one in ended if not self._passes[one]["was_returned"]]
        if ended:
            self._state["training"] = [0.0, 0]
        for state in self._passes.values():
            state["previous"] = state["mean"][1] or state["previous"]
            state["mean"], state["was_returned"] = [0.0, 0], False
        for loss in losses:
            _add_to_mean(self._state["training"], loss.value)
            self._state["first"] = [*self._state["first"], loss.value][:_NUM_FIRST]
        self._state["step"] = step.mode_step
        return finished

    def _finished(self, name: str) -> ValidationPass:
        state, first = self._passes[name], self._state["first"]
        of_pass = state.pop("targets", None)
        if of_pass and LossTargets(*of_pass).steps == state["mean"][1]:
            state.setdefault("first_targets", of_pass)
        return ValidationPass(
            loss=name,
            worker=self._worker,
            validation=state["mean"][0],
            training=self._state["training"][0],
            start=max(first[0], sorted(first)[len(first) // 2]),
            training_step=self._state["step"],
            targets=LossTargets(*state["first_targets"]) if "first_targets" in state else None,
            notes=state["notes"],
        )


def _add_to_mean(mean: list[float], value: float) -> None:
    """Add a value to a mean and its count; a sum could overflow."""
    mean[1] += 1
    mean[0] += value / mean[1] - mean[0] / mean[1]


def _add_targets(step: StepView, loss: _Loss, state: dict[str, Any]) -> None:
    """Add the targets of a step to its pass."""
    found = targets_of(step, loss.name, loss.worker, loss.value, with_values=True)
    found = found or labels_of_trees(step, loss.name, loss.worker)
    known = state.get("targets")
    if found is not None:
        state["targets"] = list(LossTargets(*known).plus(found) if known else found)


def has_unsettled_averages(step: StepView, training_step: int | None = None) -> bool:
    """Return whether a Keras model has batch normalisation whose averages are not accurate yet.

    The default number of training steps is that before a validation step.
    """
    number = step.step - step.mode_step if training_step is None else training_step
    weights = (name for names in declared(step, "weights").values() for name in names)
    return number < SETTLED_STEPS and any(each in name for name in weights for each in _AVERAGES)
