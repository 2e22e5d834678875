"""Words of texts that name a class each, wherever in the text they stand.

A word, or two or three in a row, as of letters, names a class if all texts of the class have it,
and no other text does.

Shape legend: B = rows, L = length.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypedDict

import numpy as np
import numpy.typing as npt

from rule_runtime.facts.class_counts import counted, shown_classes
from rule_runtime.numerics.column_blocks import Flags

__all__ = ["KeptWords", "worded_by", "worded_so_far"]

_MOST_ELEMENTS: Final = 1 << 16
_MOST_CLASSES: Final = 64
_MOST_WORDS: Final = 16
_FEWEST_CLASSES: Final = 2
_LONGEST: Final = 3
_AGAIN: Final = 2
_TABLE: Final = 2

_Words = set[tuple[int, ...]]


class KeptWords(TypedDict):
    """What is kept of an input from step to step.

    Attributes:
        words: For each class, by its number as text, the words that name it.
        counts: How many different rows showed it, by class.
        seen: Numbers that stand for these rows.
        at: The column of the first of these words in the first row that had one.
    """

    words: dict[str, list[list[int]]]
    counts: dict[str, int]
    seen: list[int]
    at: int


def worded_so_far(
    kept: KeptWords | None,
    texts: npt.NDArray[Any],
    classes: npt.NDArray[np.float64],
    is_new: Callable[[list[int]], Flags],
) -> KeptWords | None:
    """Return what names the classes in all batches so far; None if nothing names one of them.

    A class begins to count in a batch with two of its rows or more.

    Args:
        kept: What this returned for the batch before, if there was one.
        texts: Whole numbers [B, L].
        classes: Whole numbers from 0 on [B].
        is_new: Tells which rows are not among those that it is given, and adds them [B].
    """
    if texts.dtype.kind not in "iu" or texts.ndim != _TABLE or texts.size > _MOST_ELEMENTS:
        return None
    if not (classes == np.floor(classes)).all():
        return None
    found = kept or KeptWords(words={}, counts={}, seen=[], at=0)
    of_rows = [_words(text) for text in texts.tolist()]
    words: dict[str, list[list[int]]] = {}
    for one, count in zip(*np.unique(classes, return_counts=True), strict=True):
        number, own = str(int(one)), classes == one
        known = found["words"].get(number)
        if known is None and count < _AGAIN:
            continue
        left = _own(of_rows, own, None if known is None else {tuple(word) for word in known})
        if not left or len(words) >= _MOST_CLASSES:
            return None
        words[number] = [[*word] for word in sorted(left, key=lambda w: (len(w), w))[:_MOST_WORDS]]
    for number in found["words"].keys() - words.keys():
        left = _own(
            of_rows, classes == float(number), {(*word,) for word in found["words"][number]}
        )
        if not left:
            return None
        words[number] = [[*word] for word in sorted(left)]
    seen = [*found["seen"]]
    counts = counted(found["counts"], classes, words, is_new(seen))
    at = found["at"]
    if kept is None and words:
        number, first = next(iter(words.items()))
        row = texts[int(np.flatnonzero(classes == float(number))[0])]
        at = int(np.flatnonzero(row == first[0][0])[0])
    return KeptWords(words=words, counts=counts, seen=seen, at=at)


def worded_by(kept: KeptWords, rows: int) -> list[int]:
    """Return a column in which a class was named first; none if too few rows show it.

    Args:
        kept: What `worded_so_far` returned.
        rows: How many rows must show that a column tells a number; four times that a class.
    """
    return [kept["at"]] if shown_classes(kept["counts"], rows, _FEWEST_CLASSES) else []


def _words(text: list[int]) -> _Words:
    """Return each number of a text, and each two and three in a row."""
    return {
        tuple(text[at : at + length])
        for length in range(1, _LONGEST + 1)
        for at in range(len(text) - length + 1)
    }


def _own(of_rows: list[_Words], own: Flags, known: _Words | None) -> _Words:
    """Return the words, of those that are known if any are, of all own rows and of no other."""
    mine = [words for words, is_own in zip(of_rows, own, strict=True) if is_own]
    left: _Words = set.intersection(*mine) if known is None else known.intersection(*mine)
    return left.difference(
        *(words for words, is_own in zip(of_rows, own, strict=True) if not is_own)
    )
