"""Mean losses of validation passes, and of the training before each.

A validation pass is the EVAL steps between two training steps. XGBoost saves both losses of a round
at the same step, so each of its rounds is a pass.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.outcome import Evidence, IssueFound, Missing
from rule_runtime.facts.baseline import LossTargets, labels_of_trees, targets_of
from rule_runtime.facts.loss_sides import loss_side, usual_names
from rule_runtime.facts.missing import missing_counted_loss, missing_loss, missing_validation
from rule_runtime.facts.selection import finite_means

if TYPE_CHECKING:
    from rule_runtime.engine.rule import Memory
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["ValidationPass", "validation_passes"]

_MAX_LOSSES: Final = 32
"""Validation losses that are followed, tensor x worker; it bounds the memory."""
_NUM_FIRST: Final = 5
"""First training losses whose median is the loss at the beginning."""
_LARGEST: Final = 1e300
"""Losses from here on count as infinite: sums of them would not be numbers."""


class ValidationPass(NamedTuple):
    """A finished validation pass of one loss of one worker.

    Attributes:
        loss: Name of the validation loss.
        worker: The worker.
        validation: Mean validation loss of the pass.
        training: Mean training loss since the previous pass.
        start: Training loss at the beginning.
        training_step: Number of the latest training step, in its mode.
        targets: Targets of the first pass at whose steps all were saved; None if unknown.
        training_targets: Targets of the first training step that has some; None if unknown.
        notes: What the rule remembers of this loss, changed in place.
    """

    loss: str
    worker: str
    validation: float
    training: float
    start: float
    training_step: int
    targets: LossTargets | None
    training_targets: LossTargets | None
    notes: dict[str, Any]

    def issue(
        self,
        step: StepView,
        *,
        measure: str,
        value: float,
        threshold: float,
        text: str,
        remedy: str,
    ) -> IssueFound:
        """Return a finding in this loss.

        Args:
            step: The step that finishes the pass.
            measure: Name of what was measured.
            value: The measured value.
            threshold: What the value was compared with.
            text: The finding in words; it follows the name of the loss.
            remedy: What to try first.
        """
        evidence = Evidence(
            step=step.step,
            mode=step.mode.name,
            worker=self.worker,
            tensor=self.loss,
            measure=measure,
            value=value,
            threshold=threshold,
            sentence=f"{self.loss}: {text}",
            remedy=remedy,
        )
        return IssueFound(evidence)


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

    A pass is finished when training continues, or as soon as it is as long as the previous pass:
    otherwise the last one of a run would be lost.

    Args:
        step: The step.
        memory: The rule's memory; `losses` holds at most 32 validation losses.
        tensor_regex: Regular expressions of the losses; the collection `losses` if empty.
        with_targets: Whether to look at the targets of the losses, too.

    Raises:
        Missing: If the step has no finite loss, or the run no training or no validation loss yet.
    """
    stored: dict[str, dict[str, Any]] = memory.setdefault("losses", {})
    rows = step.tensors(collections=() if tensor_regex else ("losses",), regex=tensor_regex)
    is_silent = not len(rows) and step.mode is ModeKeys.EVAL and bool(stored)
    losses = [] if is_silent else _losses_of(step, rows)
    finished = []
    for (worker, key), group in groupby(losses, key=lambda loss: (loss.worker, loss.key)):
        name = f"{worker}/{key}"
        if name in stored or len(stored) < _MAX_LOSSES:
            pair = stored.setdefault(name, {"first": [], "training": [0.0, 0], "passes": {}})
            num_others = sum(len(of["passes"]) for of in stored.values() if of is not pair)
            finished += _add(
                step, pair, list(group), _MAX_LOSSES - num_others, with_targets=with_targets
            )
    if not finished:
        _require_both(step, stored)
    return finished


def _losses_of(step: StepView, rows: TensorRows) -> list[_Loss]:
    """Return the finite losses of a step, those of a worker and key one after the other."""
    if not len(rows):
        raise missing_loss(step)
    if step.mode is ModeKeys.PREDICT:
        raise Missing("a step of mode PREDICT is neither training nor validation")
    means = finite_means(rows)
    names = usual_names(step, rows)
    found = []
    for at in np.flatnonzero(np.abs(means) < _LARGEST):
        key, is_training = loss_side(names[at], step.mode)
        if key is not None:
            loss = _Loss(rows.workers[at], key, rows.names[at], is_training, float(means[at]))
            found.append(loss)
    if not found:
        raise missing_counted_loss(rows, means, "is not known to fall, so it may not be a loss")
    return sorted(found)


def _require_both(step: StepView, stored: dict[str, dict[str, Any]]) -> None:
    """Raise `Missing` if the run has no validation loss, or no training loss, so far."""
    if not any(pair["passes"] for pair in stored.values()):
        raise missing_validation(step)
    if not any(pair["first"] for pair in stored.values()):
        how = "call model.train() in training (XGBoost: give the training data in `evals`, too)"
        raise Missing("no training loss was saved before this validation", how)


def _add(
    step: StepView, pair: dict[str, Any], losses: list[_Loss], room: int, *, with_targets: bool
) -> list[ValidationPass]:
    """Add the losses of one worker and key; return the passes that they finish.

    Args:
        step: The step.
        pair: JSON state: the `first` training losses; `training`, their mean since the last pass;
            the state of each validation loss in `passes`: mean of the pass, length of the last one.
        losses: The losses.
        room: Validation losses to follow.
        with_targets: Whether to look at targets.
    """
    passes: dict[str, dict[str, Any]] = pair["passes"]
    training = [loss for loss in losses if loss.is_training]
    finished = []
    if training:  # earlier passes are over
        ended = [
            name for name, state in passes.items() if state["mean"][1] and not state["is_done"]
        ]
        finished = [_finish(pair, name, training[0].worker) for name in sorted(ended)]
        _continue_training(pair, training)
        pair["step"] = step.mode_step
        if with_targets and pair.get("targets") is None:
            name, value = training[0].name, training[0].value
            pair["targets"] = targets_of(step, name, training[0].worker, value)
    for loss in losses:
        if loss.is_training or (loss.name not in passes and len(passes) >= room):
            continue
        state = passes.setdefault(loss.name, {"mean": [0.0, 0], "length": 0, "notes": {}})
        if not pair["first"]:
            continue
        _add_to_mean(state["mean"], loss.value)
        if with_targets and "targets" not in state:
            _add_targets(step, loss, state)
        is_end = bool(training) or state["mean"][1] == state["length"]
        state["is_done"] = is_end or state.get("is_done", False)
        if is_end:
            finished.append(_finish(pair, loss.name, loss.worker))
    return finished


def _continue_training(pair: dict[str, Any], losses: list[_Loss]) -> None:
    """Add training losses, and begin new passes."""
    passes = pair["passes"].values()
    if any(state["mean"][1] for state in passes):
        pair["training"] = [0.0, 0]
    for state in passes:
        state["length"] = state["mean"][1] or state["length"]
        state["mean"], state["is_done"] = [0.0, 0], False
    for loss in losses:
        _add_to_mean(pair["training"], loss.value)
        pair["first"] = [*pair["first"], loss.value][:_NUM_FIRST]


def _add_to_mean(mean: list[float], value: float) -> None:
    """Add a value to a mean and its number of values; a sum could overflow."""
    mean[1] += 1
    mean[0] += value / mean[1] - mean[0] / mean[1]


def _add_targets(step: StepView, loss: _Loss, state: dict[str, Any]) -> None:
    """Add the targets of a step to those of its pass."""
    name, worker = loss.name, loss.worker
    found = targets_of(step, name, worker, loss.value, with_values=True)
    found = found or labels_of_trees(step, name, worker)
    known = state.get("open")
    if found is not None:
        state["open"] = list(LossTargets(*known).plus(found) if known else found)


def _finish(pair: dict[str, Any], name: str, worker: str) -> ValidationPass:
    state, first = pair["passes"][name], pair["first"]
    of_pass = state.pop("open", None)
    if of_pass and LossTargets(*of_pass).steps == state["mean"][1]:
        state.setdefault("targets", of_pass)
    return ValidationPass(
        loss=name,
        worker=worker,
        validation=state["mean"][0],
        training=pair["training"][0],
        start=max(first[0], sorted(first)[len(first) // 2]),
        training_step=pair["step"],
        targets=LossTargets(*state["targets"]) if "targets" in state else None,
        training_targets=LossTargets(*pair["targets"]) if pair.get("targets") else None,
        notes=state["notes"],
    )
