"""Input tokens of a language model, with targets and loss at each position.

Shape legend: B = batch, L = positions, V = vocabulary.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rule_runtime.facts.losses import Losses, LossKind
from rule_runtime.facts.model_inputs import MODEL_INPUT, OF_LAYERS
from rule_runtime.facts.supervised_rows import input_target_pairs
from rule_runtime.numerics.loss_pair import LossPair
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
        tokens: The input [B, L], integers.
        targets: The targets [B, L], negative if there is none.
        guess: The loss of a uniform guess; NaN if unknown, or if the loss may shift targets.
        by_place: Cross entropy at each position [B, L]; None if scores were not saved.
        of_twins: Mean cross entropy of the same targets by the scores of other sequences that are
            equal up to the position [B, L]; NaN without such sequences. None if `by_place` is.
        keeps_places: Whether every layer gets all positions of a sequence.
    """

    name: str
    loss: str
    tokens: npt.NDArray[Any]
    targets: npt.NDArray[Any]
    value: float
    guess: float
    by_place: npt.NDArray[np.float64] | None
    of_twins: npt.NDArray[np.float64] | None
    keeps_places: bool


def token_losses(step: StepView) -> list[TokenLosses]:
    """Return the losses with saved targets [B, L] and an input of tokens [B, L]."""
    found = []
    inputs, losses = step.tensors(regex=(MODEL_INPUT,)), step.fact(Losses)
    for at, of_targets in input_target_pairs(step, inputs):
        name, worker = inputs.names[at], inputs.workers[at]
        loss = losses.find(of_targets.replace("_input_1", "_output_0"), worker)
        if (inputs.dtypes[at] or "").startswith(_REAL) or loss.row < 0:
            continue  # values are read only if they may be tokens
        saved = step.values((name, of_targets), worker)
        tokens, targets = saved.get(name), saved.get(of_targets)
        if tokens is None or targets is None:
            continue
        if _are_tokens(tokens) and targets.dtype.kind in "iu" and targets.size == tokens.size:
            values = losses.values(loss)
            by_place, of_twins = (
                (None, None) if values is None else _cross_entropies(*values, tokens)
            )
            is_plain = loss.name == _OF_FUNCTIONS or loss.kind is LossKind.CLASSES
            one = TokenLosses(
                f"{worker}/{name}/{loss.name}",
                loss.name,
                tokens,
                targets=targets.reshape(tokens.shape),
                value=loss.value,
                guess=loss.zero_output_loss if is_plain else math.nan,
                by_place=by_place,
                of_twins=of_twins,
                keeps_places=_keeps_places(step, worker, tokens.shape),
            )
            found.append(one)
    return found


def _are_tokens(values: npt.NDArray[Any]) -> bool:
    """Return whether values are tokens; negative values may be labels for the loss."""
    are_rows = values.size > 0 and values.ndim > 1 and values[0].ndim == 1
    return are_rows and values.dtype.kind in "iu" and bool(values.min() >= 0)


def _cross_entropies(
    scores: npt.NDArray[Any], targets: npt.NDArray[Any], tokens: npt.NDArray[Any]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] | tuple[None, None]:
    """Return `by_place` and `of_twins` [B, L]; None if the scores are not class scores."""
    if scores.size > _MAX_ELEMENTS or scores.dtype.kind != "f" or not np.isfinite(scores).all():
        return None, None
    rows = LossPair(scores, targets).by_class
    if rows is None or len(rows.classes) != targets.size:
        return None, None
    losses = rows.cross_entropies.reshape(*tokens.shape, -1)
    classes = rows.classes.reshape(tokens.shape)
    own = np.take_along_axis(losses, classes[..., None], axis=-1)[..., 0]
    return own, _of_twins(losses, classes, own, tokens)


def _of_twins(
    losses: npt.NDArray[np.float64],
    classes: npt.NDArray[np.int64],
    own: npt.NDArray[np.float64],
    tokens: npt.NDArray[Any],
) -> npt.NDArray[np.float64]:
    """Return the mean losses [B, L] of classes by the scores of sequences with an equal start.

    `losses` has the cross entropy of each class [B, L, V], `own` that of the targets [B, L].
    """
    found = np.full(classes.shape, np.nan)
    starts = np.zeros(len(tokens), np.intp)
    for place in range(tokens.shape[1]):
        pairs = np.stack([starts, tokens[:, place]], axis=1)
        _, starts, counts = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
        if counts.max() == 1:
            break
        starts = starts.reshape(-1)
        begins = np.cumsum(counts) - counts
        sums = np.add.reduceat(losses[np.argsort(starts), place], begins)  # [starts, V]
        others, num = sums[starts, classes[:, place]] - own[:, place], counts[starts] - 1
        np.divide(others, num, out=found[:, place], where=num > 0)
    return found


def _keeps_places(step: StepView, worker: str, shape: tuple[int, ...]) -> bool:
    """Return whether all layer inputs from the sequences [B, L] have L positions."""
    num_rows, length = shape
    rows = step.tensors(regex=(OF_LAYERS,))
    given = [s or () for s, of in zip(rows.shapes, rows.workers, strict=True) if of == worker]
    is_kept = [length in s or num_rows * length in s for s in given if num_rows in s]
    return num_rows != length and all(is_kept)
