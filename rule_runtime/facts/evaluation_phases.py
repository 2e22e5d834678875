"""Training losses beside validation losses: by evaluation phases, whatever framework wrote them.

Where modes are set, the losses of TRAIN steps are training losses and those of EVAL steps
validation losses, paired by the tensor's name. XGBoost writes both at the same step; there its
hook tells which data is trained on, and where it does not, names: `train-rmse` and
`validation-rmse` are the two sides of `rmse`. Of XGBoost's metrics those are losses that are known
to fall, by their names or by the script's `maximize=False`: `losses` of older runs, and the
expression of the original for this collection, have others in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from hook_layer.format.metric_names import (
    FALLING_METRICS,
    GROWING_METRICS,
    is_known_to_fall,
    is_known_to_grow,
)
from hook_layer.format.modes import ModeKeys
from rule_runtime.facts.loss_advice import Framework, framework_of
from rule_runtime.facts.missing_reasons import why_no_loss
from rule_runtime.facts.selection import finite_means

if TYPE_CHECKING:
    from rule_runtime.engine.rule import Memory
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = [
    "MAX_PAIRS",
    "SIDES_OF_TREES",
    "Phase",
    "finished_phases",
    "is_share_of_errors",
    "loss_side",
    "no_loss_saved",
    "usual_names",
]

MAX_PAIRS: Final = 32
"""Validation losses that are followed, tensor x worker; further ones are skipped."""

_OTHER_DATA: Final = "data "
"""What stands in front of names of data that is not trained on, unless they say so themselves."""
_NAMED: Final = re.compile(
    r"(?:(train|training)|(?:validation|valid|val|eval|evaluation|test|dev|holdout)(?:_\d{1,4})?"
    rf"|{_OTHER_DATA}[^-]*)-(.+)"
)
SIDES_OF_TREES: Final = ("training_metrics", "validation_metrics")
"""Collections in which the hook for XGBoost tells metrics of the data trained on from others."""
_NOT_KNOWN_TO_FALL: Final = " (not known to fall)"
"""What stands behind a metric of XGBoost that is no loss as far as anybody knows."""
_NO_LOSS: Final = "no loss was saved"
_NO_LOSS_OF_TREES: Final = (
    f"{_NO_LOSS}: of the metrics of XGBoost those are losses that are known to fall, such as "
    "eval_metric='logloss' or 'rmse', and own ones that are called so or have maximize=False"
)
_SHARE_OF_ERRORS: Final = re.compile(r"-m?error(@|$)")

_Mean = list[Any]
"""A running mean and how many numbers it is of."""


class Phase(NamedTuple):
    """An evaluation phase that has ended, of one loss of one worker.

    Attributes:
        loss: Name of the validation loss.
        worker: The worker.
        training: Mean training loss since the phase before.
        validation: Mean validation loss of the phase.
        notes: What the rule keeps of this loss between its phases, changed in place.
    """

    loss: str
    worker: str
    training: float
    validation: float
    notes: dict[str, Any]


class _Loss(NamedTuple):
    """A loss of the step: its name, what pairs it with others, and its value."""

    name: str
    worker: str
    key: str
    is_training: bool
    value: float


def finished_phases(
    step: StepView, tensor_regex: tuple[str, ...], memory: Memory
) -> tuple[list[Phase], str]:
    """Add the losses of a step; return the evaluation phases that ended with it, or why none did.

    A phase ends when training continues. It is returned earlier, with its last step, once it is as
    long as the phase before: so the last one of a run is not lost. A step that holds both losses is
    a phase of its own. A phase with no training loss in front of it is none.

    Args:
        step: The step.
        tensor_regex: Regular expressions of the losses; the collection `losses` if empty.
        memory: The rule's memory; `pairs` is of at most 32 validation losses.
    """
    losses, reason = _losses_of(step, tensor_regex)
    if not losses:
        return [], reason
    pairs = _read(memory.get("pairs", ()))
    ended = []
    by_key: dict[tuple[str, str], list[_Loss]] = {}
    for loss in losses:
        by_key.setdefault((loss.key, loss.worker), []).append(loss)
    for names in sorted(by_key):
        room = MAX_PAIRS - sum(max(len(pair["phases"]), 1) for pair in pairs.values())
        if names not in pairs:
            if room <= 0:
                continue
            pairs[names] = {"training": [0.0, 0], "phases": {}}
        elif not pairs[names]["phases"]:
            room += 1
        ended += _add(pairs[names], names[1], by_key[names], room)
    memory["pairs"] = [[*names, pair] for names, pair in pairs.items()]
    return ended, "" if ended else _reason(pairs, losses)


def _reason(pairs: dict[tuple[str, str], dict[str, Any]], losses: list[_Loss]) -> str:
    """Return why no phase ended."""
    if not any(pair["phases"] for pair in pairs.values()):
        return "no validation loss was saved so far, for the training loss to be compared with"
    if all(loss.is_training for loss in losses):
        return "no evaluation has followed so far, for the training loss to be compared with"
    if not any(pair["training"][1] for pair in pairs.values()):
        return "no training loss was saved before this evaluation"
    return "the evaluation goes on"


def _losses_of(step: StepView, tensor_regex: tuple[str, ...]) -> tuple[list[_Loss], str]:
    """Return the finite losses of a step by name, or the reason why there is none."""
    rows = step.tensors(collections=() if tensor_regex else ("losses",), regex=tensor_regex)
    if not len(rows):
        return [], no_loss_saved(step)
    if step.mode is ModeKeys.PREDICT:
        return [], "a step of mode PREDICT is neither training nor validation"
    means = finite_means(rows)
    names = usual_names(step, rows)
    found = []
    for at in np.flatnonzero(np.isfinite(means)):
        key, is_training = loss_side(names[at], step.mode)
        if key is not None:
            found.append(
                _Loss(rows.names[at], rows.workers[at], key, is_training, float(means[at]))
            )
    is_open = any(name.endswith(_NOT_KNOWN_TO_FALL) for name in names)
    unlike = f"is {'not known to fall' if is_open else 'better the larger it is'}, and no loss"
    return sorted(found), "" if found else why_no_loss(rows, means, unlike)


def no_loss_saved(step: StepView) -> str:
    """Return that no loss was saved, and of XGBoost what is one.

    Args:
        step: The step.
    """
    return _NO_LOSS_OF_TREES if framework_of(step) is Framework.XGBOOST else _NO_LOSS


def is_share_of_errors(loss: str) -> bool:
    """Return whether a loss of XGBoost counts errors: it moves in jumps and may stand still.

    Args:
        loss: Name of the loss, as `train-error`.
    """
    return _SHARE_OF_ERRORS.search(loss) is not None


def usual_names(step: StepView, rows: TensorRows) -> list[str]:
    """Return the names of losses [R], of XGBoost's as if the data trained on was called `train`.

    The hook tells by the collections `training_metrics` and `validation_metrics` which data that
    is; names are as they are in runs without these. Behind a metric of XGBoost that is no loss as
    far as its name and the script tell, that is said: `loss_side` takes it for none.

    Args:
        step: The step.
        rows: Its losses [R].
    """
    trained, other = (_members(step, side) for side in SIDES_OF_TREES)
    found = list(rows.names)
    for at, pair in enumerate(zip(rows.names, rows.workers, strict=True)):
        if pair in trained:
            found[at] = f"train-{pair[0].partition('-')[2]}"
        elif pair in other and loss_side(pair[0], step.mode)[1]:
            found[at] = _OTHER_DATA + pair[0]
    if any("-" in name for name in found) and framework_of(step) is Framework.XGBOOST:
        return _marked(step, rows, found)
    return found


def _marked(step: StepView, rows: TensorRows, names: Iterable[str]) -> list[str]:
    """Return names [R] of XGBoost's metrics, with a mark where one is not known to fall."""
    falling, growing = (_members(step, name) for name in (FALLING_METRICS, GROWING_METRICS))
    marked = []
    for name, *pair in zip(names, rows.names, rows.workers, strict=True):
        metric = _metric(name)
        falls = tuple(pair) in falling or is_known_to_fall(metric)
        is_loss = falls and tuple(pair) not in growing
        is_told = is_loss or not metric or is_known_to_grow(metric)
        marked.append(name if is_told else name + _NOT_KNOWN_TO_FALL)
    return marked


def _members(step: StepView, collection: str) -> set[tuple[str, str]]:
    """Return names and workers of the tensors of a collection."""
    rows = step.tensors(collections=(collection,))
    return set(zip(rows.names, rows.workers, strict=True))


def _metric(name: str) -> str:
    """Return the metric of a name of XGBoost; empty where there is none."""
    named = _NAMED.fullmatch(name)
    return name.partition("-")[2] if named is None else named[2]


def loss_side(name: str, mode: ModeKeys) -> tuple[str | None, bool]:
    """Return what pairs a loss with others, and whether it is one of training.

    The first is None for a metric of XGBoost that is better the larger it is, or that is not known
    to fall: that is no loss.

    Args:
        name: Name of the tensor, as `usual_names` returns it.
        mode: Mode of its step.
    """
    named = _NAMED.fullmatch(name)
    is_loss = not name.endswith(_NOT_KNOWN_TO_FALL)
    if named is None:
        return (name if is_loss else None), mode is not ModeKeys.EVAL
    training, metric = named.groups()
    is_loss = is_loss and not is_known_to_grow(metric)
    return (f"-{metric}" if is_loss else None), training is not None


def _add(pair: dict[str, Any], worker: str, losses: Iterable[_Loss], room: int) -> list[Phase]:
    """Add the losses of one pair, `room` new ones at most; return the phases that ended."""
    training = [loss for loss in losses if loss.is_training]
    validation = [loss for loss in losses if not loss.is_training]
    phases: dict[str, dict[str, Any]] = pair["phases"]
    ended = []
    if training:
        is_open = any(phase["mean"][1] for phase in phases.values())
        for name, phase in sorted(phases.items()):
            ended += _end(name, worker, pair["training"], phase)
            phase.update(mean=[0.0, 0], length=phase["mean"][1] or phase["length"], is_told=False)
        if is_open:
            pair["training"] = [0.0, 0]
        for loss in training:
            _count(pair["training"], loss.value)
    for loss in validation:
        if loss.name not in phases:
            if room <= 0:
                continue
            room -= 1
            phases[loss.name] = {"mean": [0.0, 0], "length": 0, "is_told": False, "notes": {}}
        phase = phases[loss.name]
        if not pair["training"][1]:
            continue
        _count(phase["mean"], loss.value)
        if training or 0 < phase["length"] <= phase["mean"][1]:
            ended += _end(loss.name, worker, pair["training"], phase)
    return ended


def _end(name: str, worker: str, training: _Mean, phase: dict[str, Any]) -> list[Phase]:
    """Return a phase, unless there is nothing in it or it was returned before."""
    if not phase["mean"][1] or not training[1] or phase["is_told"]:
        return []
    phase["is_told"] = True
    return [Phase(name, worker, training[0], phase["mean"][0], phase["notes"])]


def _count(mean: _Mean, value: float) -> None:
    """Add a number to a mean; a sum could overflow."""
    mean[1] += 1
    share = 1 / mean[1]
    mean[0] = mean[0] * (1 - share) + value * share


def _read(rows: Iterable[list[Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(key, worker): pair for key, worker, pair in rows}
