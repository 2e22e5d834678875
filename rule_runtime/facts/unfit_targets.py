"""Targets that a loss cannot have, by its name and by the range of what it gets."""

from __future__ import annotations

import re
from typing import Final

from rule_runtime.facts.loss_inputs import Input
from rule_runtime.facts.loss_mismatch import LossMismatch

__all__ = ["unfit_targets_of"]

_OF_PROBABILITIES: Final = re.compile(r"^(BCE(WithLogits)?|MultiLabelSoftMargin)Loss_output")
_OF_SIGNS: Final = re.compile(r"^(SoftMargin|HingeEmbedding)Loss_output")
_OF_CLASSES: Final = re.compile(r"^CrossEntropyLoss_output")
_OF_SHARES: Final = re.compile(r"^KLDivLoss_output")
_OF_COUNTS: Final = re.compile(r"^PoissonNLLLoss_output")
_OF_LISTS: Final = re.compile(r"^MultiLabelMarginLoss_output")
_BEYOND: Final = 1e-3
_MATRIX: Final = 2
_MORE_THAN_ROUNDING: Final = 0.01


def unfit_targets_of(name: str, outputs: Input, targets: Input) -> LossMismatch | None:
    """Return what is wrong with targets of classes, of yes or no, or of counts.

    Args:
        name: Name of the loss, `X_output_0`.
        outputs: What the model says.
        targets: The targets.
    """
    if _OF_CLASSES.match(name):
        return _of_one_score(outputs) or _of_shares(outputs, targets)
    is_matrix = len(targets.shape or ()) == _MATRIX
    of_shares = _of_shares(outputs, targets) if _OF_SHARES.match(name) and is_matrix else None
    return of_shares or _out_of_range(name, targets)


def _out_of_range(name: str, targets: Input) -> LossMismatch | None:
    low, high = targets.low, targets.high
    is_below, is_above = low < -_BEYOND, high > 1 + _BEYOND
    are_bits = (low, high) == (0, 1)
    # Logarithms of probabilities, as with log_target, are all below 0.
    if _OF_SHARES.match(name) and is_below and high > _BEYOND:
        return _told("probabilities", low, 0.0, targets)
    if _OF_PROBABILITIES.match(name) and not (low >= -_BEYOND and high <= 1 + _BEYOND):
        value, limit = (high, 1.0) if is_above and not is_below else (low, 0.0)
        return _told("targets from 0 to 1", value, limit, targets)
    if _OF_COUNTS.match(name) and is_below:
        return _told("counts, from 0 on", low, 0.0, targets)
    if _OF_SIGNS.match(name) and are_bits:
        return _told("targets of -1 and 1", 0.0, -1.0, targets)
    # A list of a row's classes that none ends has all of them.
    if _OF_LISTS.match(name) and are_bits and (targets.shape or (0,))[-1] > _MATRIX:
        return _told("numbers of a row's classes, and -1 behind them", 0.0, -1.0, targets)
    return None


def _told(made_for: str, value: float, threshold: float, targets: Input) -> LossMismatch:
    given = f"{targets.low:.3g} to {targets.high:.3g}"
    if (targets.low, targets.high) == (0, 1):
        given = "0 and 1"
    return LossMismatch("target", value, threshold, f"takes {made_for}, and gets {given}")


def _of_one_score(outputs: Input) -> LossMismatch | None:
    """Return what is wrong with scores of a single class: their cross entropy is always 0."""
    shape = outputs.shape or ()
    if len(shape) < _MATRIX or shape[1] != 1:
        return None
    message = (
        f"compares scores of several classes, and gets one of each row, {list(shape)}: it is 0"
    )
    return LossMismatch("scores", 1.0, 2.0, f"{message} whatever the model says")


def _of_shares(outputs: Input, targets: Input) -> LossMismatch | None:
    """Return what is wrong with targets of several classes that can hold together.

    Rows of a sum below 1 may be left out of the loss on purpose; no row has more than one class.
    """
    shape = targets.shape or ()
    if len(shape) < _MATRIX or shape != outputs.shape or not targets.low >= 0:
        return None
    total = targets.mean * shape[1]
    if total <= 1 + _MORE_THAN_ROUNDING:
        return None
    message = "takes targets that sum to 1 in each row, one class or probabilities, and gets rows "
    return LossMismatch("row_sum", total, 1.0, f"{message}that sum to {total:.3g} in the mean")
