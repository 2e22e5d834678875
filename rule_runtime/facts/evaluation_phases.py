"""Training and validation losses of evaluation phases, whatever framework wrote them.

An evaluation phase is a validation pass and the training steps before it. XGBoost saves both losses
at the same step, so each of its steps is a phase.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from hook_layer.format.modes import ModeKeys
from rule_runtime.engine.outcome import Missing
from rule_runtime.facts.loss_sides import (
    SIDES_OF_TREES,
    is_share_of_errors,
    loss_side,
    usual_names,
)
from rule_runtime.facts.missing import missing_counted_loss, missing_loss
from rule_runtime.facts.selection import finite_means
from rule_runtime.numerics.running_mean import add_to_mean

if TYPE_CHECKING:
    from rule_runtime.engine.rule import Memory
    from rule_runtime.trial.step_view import StepView

__all__ = [
    "MAX_PAIRS",
    "SIDES_OF_TREES",
    "Phase",
    "finished_phases",
    "is_share_of_errors",
    "loss_side",
    "usual_names",
]

MAX_PAIRS: Final = 32
"""Validation losses that are followed, tensor x worker; it bounds the memory."""


class Phase(NamedTuple):
    """A finished evaluation phase of one validation loss of one worker.

    Attributes:
        loss: Name of the validation loss.
        worker: The worker.
        training: Mean training loss since the previous phase.
        validation: Mean validation loss of the phase.
        notes: What the rule remembers of this loss, changed in place.
    """

    loss: str
    worker: str
    training: float
    validation: float
    notes: dict[str, Any]


class _Loss(NamedTuple):
    """A loss of the step; losses with the same worker and key belong together."""

    worker: str
    key: str
    name: str
    is_training: bool
    value: float


def finished_phases(
    step: StepView, tensor_regex: tuple[str, ...], memory: Memory
) -> tuple[list[Phase], str]:
    """Add the losses of a step; return the phases that it finishes, or why it finishes none.

    A phase is finished when training continues, or as soon as it is as long as the previous phase:
    otherwise the last one of a run would be lost.

    Args:
        step: The step.
        tensor_regex: Regular expressions of the losses; the collection `losses` if empty.
        memory: The rule's memory; `pairs` holds at most 32 validation losses.

    Raises:
        Missing: If the step has no finite loss.
    """
    losses = _losses_of(step, tensor_regex)
    pairs = {(key, worker): pair for key, worker, pair in memory.get("pairs", ())}
    finished = []
    for (worker, key), group in groupby(losses, key=lambda loss: (loss.worker, loss.key)):
        pair = pairs.get((key, worker), {"training": [0.0, 0], "phases": {}})
        others = sum(max(len(of["phases"]), 1) for of in pairs.values() if of is not pair)
        if others < MAX_PAIRS:
            pairs[key, worker] = pair
        if (key, worker) in pairs:
            finished += _add(pair, list(group), MAX_PAIRS - others)
    memory["pairs"] = [[*names, pair] for names, pair in pairs.items()]
    return finished, "" if finished else _why_not_finished(list(pairs.values()), losses)


def _losses_of(step: StepView, tensor_regex: tuple[str, ...]) -> list[_Loss]:
    """Return the finite losses of a step, those of a worker and key one after the other."""
    rows = step.tensors(collections=() if tensor_regex else ("losses",), regex=tensor_regex)
    if not len(rows):
        raise missing_loss(step)
    if step.mode is ModeKeys.PREDICT:
        raise Missing("a step of mode PREDICT is neither training nor validation")
    means = finite_means(rows)
    names = usual_names(step, rows)
    found = []
    for at in np.flatnonzero(np.isfinite(means)):
        key, is_training = loss_side(names[at], step.mode)
        if key is not None:
            loss = _Loss(rows.workers[at], key, rows.names[at], is_training, float(means[at]))
            found.append(loss)
    if not found:
        raise missing_counted_loss(rows, means, "is not known to fall, so it may not be a loss")
    return sorted(found)


def _why_not_finished(pairs: list[dict[str, Any]], losses: list[_Loss]) -> str:
    if not any(pair["phases"] for pair in pairs):
        return "no validation loss has been saved yet"
    if all(loss.is_training for loss in losses):
        return "no validation has followed this training loss yet"
    if not any(pair["training"][1] for pair in pairs):
        return "no training loss was saved before this validation"
    return "the validation pass continues"


def _add(pair: dict[str, Any], losses: list[_Loss], max_phases: int) -> list[Phase]:
    """Add the losses of one worker and key; return the phases that they finish."""
    training = [loss.value for loss in losses if loss.is_training]
    finished = _continue_training(pair, losses[0].worker, training) if training else []
    phases: dict[str, dict[str, Any]] = pair["phases"]
    for loss in losses:
        if loss.is_training or (loss.name not in phases and len(phases) >= max_phases):
            continue
        phase = phases.setdefault(loss.name, {"mean": [0.0, 0], "length": 0, "notes": {}})
        if not pair["training"][1]:
            continue
        add_to_mean(phase["mean"], loss.value)
        if training:
            phase["length"] = phase["mean"][1]
        if phase["mean"][1] == phase["length"]:
            finished.append(_phase(loss.name, loss.worker, pair))
    return finished


def _continue_training(pair: dict[str, Any], worker: str, losses: list[float]) -> list[Phase]:
    """Add training losses; return the phases that end because training continues."""
    phases: dict[str, dict[str, Any]] = pair["phases"]
    # A phase of at least the previous length has been returned before.
    finished = [
        _phase(name, worker, pair)
        for name, phase in sorted(phases.items())
        if phase["mean"][1] and not 0 < phase["length"] <= phase["mean"][1]
    ]
    if any(phase["mean"][1] for phase in phases.values()):
        pair["training"] = [0.0, 0]
    for phase in phases.values():
        phase.update(mean=[0.0, 0], length=phase["mean"][1] or phase["length"])
    for loss in losses:
        add_to_mean(pair["training"], loss)
    return finished


def _phase(name: str, worker: str, pair: dict[str, Any]) -> Phase:
    phase = pair["phases"][name]
    return Phase(name, worker, pair["training"][0], phase["mean"][0], phase["notes"])
