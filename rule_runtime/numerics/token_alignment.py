"""Finds by value which tokens the targets of a language model are.

Shape legend: B = batch, L = positions, M = positions with scores.

Inputs, and scores with their targets, may each have the positions first: [L, B] and [M, B].
"""

from __future__ import annotations

from itertools import product
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Alignment", "align", "by_sequence"]

_Tokens = npt.NDArray[Any]

_MIN_TOKENS: Final = 32
"""Minimum positions with a target; fewer may be equal by chance."""


class Alignment(NamedTuple):
    """Tokens that are the targets.

    If there are fewer scores than tokens, it is unknown whether the first or the last positions
    have none. So the distance from a token to its target has bounds.

    Attributes:
        start: First position with scores, if the distance is the usual one.
        least: Smallest distance: 1 is the next token, 0 the same, -1 the one before.
        most: Largest distance.
        is_token: Whether the target at a position is a token of the input [B, L].
        is_input_transposed: Whether the positions come first in the input.
        is_target_transposed: Whether the positions come first in scores and targets.
    """

    start: int
    least: int
    most: int
    is_token: npt.NDArray[np.bool_]
    is_input_transposed: bool = False
    is_target_transposed: bool = False

    @property
    def distance(self) -> int:
        """The possible distance that is closest to 1."""
        return min(max(1, self.least), self.most)


def align(tokens: _Tokens, targets: _Tokens) -> Alignment | None:
    """Return the tokens [B, L] or [L, B] that the targets are; None if they are others.

    Negative targets are masked. Targets beyond both ends of the input are unknown. One target for
    each row is none.
    """
    for is_input_transposed, is_target_transposed in product((False, True), repeat=2):
        sequences = tokens.T if is_input_transposed else tokens
        if targets.size % len(sequences):
            continue
        rows = by_sequence(targets.reshape(-1), len(sequences), is_transposed=is_target_transposed)
        found = _aligned(sequences, rows)
        if found is not None:
            return found._replace(
                is_input_transposed=is_input_transposed, is_target_transposed=is_target_transposed
            )
    return None


def by_sequence(values: _Tokens, num_sequences: int, *, is_transposed: bool) -> _Tokens:
    """Return flat values [B * M, ...] as [B, M, ...]; transposed ones are [M * B, ...]."""
    shape = (-1, num_sequences) if is_transposed else (num_sequences, -1)
    found: _Tokens = values.reshape(*shape, *values.shape[1:])
    return np.swapaxes(found, 0, 1) if is_transposed else found


def _aligned(tokens: _Tokens, rows: _Tokens) -> Alignment | None:
    """Return the tokens [B, L] that the targets [B, M] are."""
    spare = tokens.shape[1] - rows.shape[1]
    if not 0 <= spare < tokens.shape[1] - 1:
        return None
    # Nearest to the next token first, because texts may repeat themselves.
    is_token = np.zeros(tokens.shape, np.bool_)
    places = [Alignment(0, at - spare, at, is_token) for at in range(-1, spare + 3)]
    for one in sorted(places, key=lambda place: abs(place.distance - 1)):
        # Recalling a token from longer ago is a task.
        known = None if one.most < 1 and one.least < -1 else _known(tokens, rows, one.most)
        if known is not None:
            start = one.most - one.distance
            is_token[:, start : start + rows.shape[1]] = known
            return one._replace(start=start)
    return None


def _known(tokens: _Tokens, rows: _Tokens, offset: int) -> npt.NDArray[np.bool_] | None:
    """Return which targets [B, M] are the tokens at an offset; None if any is another one."""
    columns = np.arange(rows.shape[1]) + offset
    is_inside = (columns >= 0) & (columns < tokens.shape[1])
    known = (rows >= 0) & is_inside
    wanted, given = rows[known], tokens[:, columns * is_inside][known]
    is_varied = len(wanted) >= _MIN_TOKENS and bool((wanted != wanted[0]).any())
    return known if is_varied and np.array_equal(given, wanted) else None
