"""Which columns have told targets in all batches so far, in a form that a checkpoint can hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypedDict

from rule_runtime.numerics.telling_columns import TOGETHER, Told

__all__ = ["OF_CLASSES", "Kept", "KeptTarget", "joined", "known_columns", "told_columns"]

_MAX_COLUMNS: Final = 512
_MAX_CLASSES: Final = 32
OF_CLASSES: Final = 4
"""Times the rows that must show that classes are told: a good feature may be right for long."""


class KeptTarget(TypedDict):
    """What told one target in all batches in which it varied.

    Attributes:
        columns: The columns, as of `Told`.
        rows: How many rows showed it.
        alone: Those of the columns that told all of it alone in each batch.
        are_classes: Whether they were classes in any batch.
        batches: In how many batches it varied.
        near: In how many of these a further column came near.
    """

    columns: dict[str, list[int]]
    rows: int
    alone: list[int]
    are_classes: bool
    batches: int
    near: int


Kept = list[KeptTarget | None]
"""For each target what is kept, None if no row showed anything yet; empty if one is not told."""


def known_columns(kept: Kept | None, num_columns: int) -> list[list[int] | None] | None:
    """Return the only columns that may still tell each target together.

    Args:
        kept: What is kept of the targets.
        num_columns: How many columns the input has now.
    """
    if kept is None:
        return None
    known = [None if one is None else one["columns"].get(TOGETHER) for one in kept]
    return [of and [at for at in of if at < num_columns] for of in known]


def joined(kept: Kept | None, message: Sequence[Told | None]) -> Kept:
    """Return what is kept behind a further batch: at most 512 columns, of at most 32 classes.

    Args:
        kept: What was kept before it; None at the first.
        message: What tells each target in it.
    """
    if kept is not None and len(kept) != len(message):
        kept = None  # other targets than before
    most = max(_MAX_COLUMNS // len(message), 1)
    before = kept or [None] * len(message)
    found = [_joined(one, now, most) for one, now in zip(before, message, strict=True)]
    is_refuted = any(one is not None and not all(one["columns"].values()) for one in found)
    return [] if is_refuted else found


def told_columns(kept: Kept | None, rows: int) -> tuple[list[int], int, bool]:
    """Return columns that tell each target, in how many rows, and if not each of them does alone.

    Of several targets, half must be told in so many rows, and none be refuted. Classes need four
    times the rows, of all their targets together: a good feature may be right for long. Two classes
    are told by nothing if a further column came near in half of the batches, or more.

    Args:
        kept: What is kept of the targets.
        rows: How many rows must show it.

    Returns:
        The first column that tells each target alone, else all that tell it together; none if too
        few rows show it.
    """
    all_kept = kept or ()
    of_classes = rows * max(OF_CLASSES / max(len(all_kept), 1), 1)
    enough = [
        one
        for one in all_kept
        if one
        and one["rows"] >= (of_classes if one["are_classes"] else rows)
        and 2 * one["near"] < one["batches"]
    ]
    if not enough or 2 * len(enough) < len(all_kept):
        return [], 0, False
    columns = [_first(one) for one in enough]
    is_together = any(len(of) > 1 for of in columns)
    every = list(dict.fromkeys(at for of in columns for at in of))
    return every, min(one["rows"] for one in enough), is_together


def _joined(one: KeptTarget | None, now: Told | None, most: int) -> KeptTarget | None:
    """Return what is kept of a target behind a further batch, of at most so many columns."""
    if now is None:
        return one
    if one is None:
        if not now.num_rows and all(now.columns.values()):
            return None  # it may be chance, but is not refuted
        one = _unknown([*now.alone][:most])
    before, after = one["columns"], now.columns
    keys = (before.keys() | after.keys()) - {TOGETHER} or {TOGETHER}
    of_class = max(most // len(keys), 1)
    columns = {}
    for key in sorted(keys, key=lambda key: (key not in before, key))[: min(most, _MAX_CLASSES)]:
        old, new = before.get(key, before.get(TOGETHER)), after.get(key, after.get(TOGETHER))
        both = (old or new or []) if old is None or new is None else sorted({*old} & {*new})
        columns[key] = both[:of_class]
    return {
        "columns": columns,
        "rows": one["rows"] + now.num_rows,
        "alone": sorted({*one["alone"]} & {*now.alone}),
        "are_classes": one["are_classes"] or now.are_classes,
        "batches": one["batches"] + 1,
        "near": one["near"] + now.is_near,
    }


def _unknown(alone: list[int]) -> KeptTarget:
    return {
        "columns": {},
        "rows": 0,
        "alone": alone,
        "are_classes": False,
        "batches": 0,
        "near": 0,
    }


def _first(one: KeptTarget) -> list[int]:
    """Return the first column that tells a target alone, else all, or one for each class."""
    columns = one["columns"]
    alone = sorted({*one["alone"]}.intersection(*columns.values()))
    if alone or TOGETHER in columns:
        return alone[:1] or columns[TOGETHER]
    return sorted({at[0] for at in columns.values()})
