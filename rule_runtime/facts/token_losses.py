"""Input tokens of a language model, with targets and loss at each position.

Shape legend: B = batch, L = positions, M = positions with scores, V = vocabulary.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rule_runtime.facts.losses import Loss, Losses, LossKind
from rule_runtime.facts.model_inputs import MODEL_INPUT, OF_LAYERS
from rule_runtime.facts.supervised_rows import input_target_pairs
from rule_runtime.numerics.loss_pair import LossPair
from rule_runtime.numerics.token_alignment import Alignment, align, by_sequence
from rule_runtime.trial.step_view import StepView

__all__ = ["TokenLosses", "token_losses"]

_REAL: Final = ("float", "bfloat")
_OF_FUNCTIONS: Final = "Loss_output_0"
_MAX_ELEMENTS: Final = 1 << 24
"""Maximum number of scores; more take seconds."""


class TokenLosses(NamedTuple):
    """Tokens and targets of a loss.

    Attributes:
        name: Identifies the worker, the input and the loss.
        alignment: The tokens that are the targets; None if the targets are others.
        value: The loss of these targets; the loss of all targets if scores were not saved.
        guess: The loss of a uniform guess; NaN if unknown, or if the loss may shift targets.
        by_place: Cross entropy at each position [B, L], NaN without a target; None if scores were
            not saved.
        of_twins: Mean cross entropy of the same targets by the scores of other sequences that are
            equal up to the position [B, L]; NaN without such sequences. None if `by_place` is.
        keeps_places: Whether the model gets the tokens alone, and every layer all positions of a
            sequence.
    """

    name: str
    loss: str
    alignment: Alignment | None
    value: float
    guess: float
    by_place: npt.NDArray[np.float64] | None
    of_twins: npt.NDArray[np.float64] | None
    keeps_places: bool


def token_losses(step: StepView) -> list[TokenLosses]:
    """Return the losses with an input of tokens [B, L] and targets that are [B, L], or tokens.

    Positions may come first in both.
    """
    found = []
    inputs, losses = step.tensors(regex=(MODEL_INPUT,)), step.fact(Losses)
    for at, of_targets in input_target_pairs(step, inputs):
        name, worker = inputs.names[at], inputs.workers[at]
        loss = _loss_of(losses, of_targets, worker)
        if (inputs.dtypes[at] or "").startswith(_REAL) or loss.row < 0:
            continue  # values are read only if they may be tokens
        saved = step.values((name, of_targets), worker)
        tokens, targets = saved.get(name), saved.get(of_targets)
        if tokens is None or targets is None:
            continue
        if not _are_tokens(tokens) or targets.dtype.kind not in "iu":
            continue
        alignment = align(tokens, targets)
        if alignment is None and targets.size != tokens.size:
            continue
        if alignment is not None and alignment.is_input_transposed:
            tokens = tokens.T
        by_place, of_twins = _cross_entropies(losses.values(loss), tokens, alignment)
        value = loss.value
        if by_place is not None and alignment is not None:
            value = float(by_place[alignment.is_token].mean())
        is_plain = loss.name == _OF_FUNCTIONS or loss.kind is LossKind.CLASSES
        one = TokenLosses(
            f"{worker}/{name}/{loss.name}",
            loss.name,
            alignment,
            value=value,
            guess=loss.zero_output_loss if is_plain else math.nan,
            by_place=by_place,
            of_twins=of_twins,
            keeps_places=_keeps_places(step, (name, worker), tokens),
        )
        found.append(one)
    return found


def _loss_of(losses: Losses, of_targets: str, worker: str) -> Loss:
    """Return the loss that gets targets; labels of Keras are those of a worker's only loss."""
    own = [loss for loss in losses.losses if loss.worker == worker and loss.owner]
    if not of_targets.endswith("_input_1") and len(own) == 1:
        return own[0]
    return losses.find(of_targets.replace("_input_1", "_output_0"), worker)


def _are_tokens(values: npt.NDArray[Any]) -> bool:
    """Return whether values are tokens; negative values may be labels for the loss."""
    are_rows = values.size > 0 and values.ndim > 1 and values[0].ndim == 1
    return are_rows and values.dtype.kind in "iu" and bool(values.min() >= 0)


def _cross_entropies(
    values: tuple[npt.NDArray[Any], npt.NDArray[Any]] | None,
    tokens: npt.NDArray[Any],
    alignment: Alignment | None,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] | tuple[None, None]:
    """Return `by_place` and `of_twins` [B, L]; None if no class scores were saved."""
    scores, targets = values or (np.empty(0), np.empty(0))
    is_small = 0 < scores.size <= _MAX_ELEMENTS and scores.dtype.kind == "f"
    rows = None
    if is_small and np.isfinite(scores).all():
        rows = LossPair(scores, np.maximum(targets, 0)).by_class
    if rows is None or len(rows.classes) != targets.size:
        return None, None
    start, is_transposed = 0, False
    if alignment is not None:
        start, is_transposed = alignment.start, alignment.is_target_transposed
    losses, classes, of_sequences = (
        by_sequence(of, len(tokens), is_transposed=is_transposed)
        for of in (rows.cross_entropies, rows.classes, targets.reshape(-1))
    )
    own = np.take_along_axis(losses, classes[..., None], axis=-1)[..., 0]
    end = start + classes.shape[1]
    found = np.full((2, *tokens.shape), np.nan)
    found[:, :, start:end] = own, _of_twins(losses, classes, own, tokens[:, :end])
    found[:, :, start:end][:, of_sequences < 0] = np.nan
    return found[0], found[1]


def _of_twins(
    losses: npt.NDArray[np.float64],
    classes: npt.NDArray[np.int64],
    own: npt.NDArray[np.float64],
    tokens: npt.NDArray[Any],
) -> npt.NDArray[np.float64]:
    """Return the mean losses [B, M] of classes by the scores of sequences with an equal start.

    `losses` has the cross entropy of each class [B, M, V], `own` that of the targets [B, M]. The
    last M of the tokens have scores.
    """
    found = np.full(classes.shape, np.nan)
    starts = np.zeros(len(tokens), np.intp)
    for place, column in enumerate(tokens.T, classes.shape[1] - tokens.shape[1]):
        pairs = np.stack([starts, column], axis=1)
        _, starts, counts = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
        if counts.max() == 1:
            break
        starts = starts.reshape(-1)
        if place < 0:
            continue
        begins = np.cumsum(counts) - counts
        sums = np.add.reduceat(losses[np.argsort(starts), place], begins)  # [starts, V]
        others, num = sums[starts, classes[:, place]] - own[:, place], counts[starts] - 1
        np.divide(others, num, out=found[:, place], where=num > 0)
    return found


def _keeps_places(step: StepView, of: tuple[str, str], tokens: npt.NDArray[Any]) -> bool:
    """Return whether a model gets tokens [B, L] alone, and its layers all L positions.

    Masks and labels do not count.

    Args:
        step: The step.
        of: Name and worker of the tokens.
        tokens: The tokens.
    """
    num_rows, length = tokens.shape
    owner = re.escape(of[0].rpartition("_input_")[0])
    others = step.tensors(regex=(f"^{owner}_input_[0-9]+$",))
    for name, worker in others.pairs:
        given = step.values((name,), worker).get(name) if worker == of[1] else tokens
        if given is None or (num_rows in given.shape and not _is_redundant(given, tokens)):
            return False
    rows, of_losses = step.tensors(regex=(OF_LAYERS,)), {o.owner for o in step.fact(Losses).losses}
    is_layer = [
        worker == of[1] and name.rpartition("_input_")[0] not in of_losses
        for name, worker in rows.pairs
    ]
    shapes = [shape or () for shape in rows.select(is_layer).shapes]
    is_kept = [length in s or num_rows * length in s for s in shapes if num_rows in s]
    return num_rows != length and all(is_kept)


def _is_redundant(given: npt.NDArray[Any], tokens: npt.NDArray[Any]) -> bool:
    """Return whether an input is a mask, the tokens, or their labels."""
    if given.dtype.kind not in "biu":
        return False
    is_mask = bool(given.min(initial=0) >= 0 and given.max(initial=0) <= 1)
    aligned = None if is_mask else align(tokens, given)
    return is_mask or (aligned is not None and aligned.least >= 0)
