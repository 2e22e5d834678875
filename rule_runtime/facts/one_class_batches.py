"""Batches that have labels of one class each: rows that are sorted by class.

Shape legend: R = rows of labels, one for each (tensor, worker).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from rule_runtime.numerics.series_memory import MAX_SERIES

if TYPE_CHECKING:
    from rule_runtime.engine.rule import Memory
    from rule_runtime.facts.loss_calls import AllCalls
    from rule_runtime.facts.loss_targets import Beside
    from rule_runtime.trial.step_view import TensorRows

__all__ = ["LEAST_SHARE", "OneClassBatches", "one_class_batches"]

LEAST_SHARE: Final = 0.5
"""Of the batches so many must have one class each."""

_FEWEST_ROWS: Final = 8
_FEWEST_STEPS: Final = 10
_SEVERAL: Final = 3
_OF_TWO: Final = 0.9
_SWITCHES: Final = 0.25
_BACK_TWICE: Final = 4


@dataclass
class OneClassBatches:
    """What is known of the batches of one tensor.

    Attributes:
        num_steps: Saved steps with a batch that could tell.
        num_alike: Those of one class each.
        num_rows: Rows of these.
        num_switches: How often one of them had another class than the one before.
        latest: Class of the latest of them.
        classes: Their classes, the first 3.
    """

    num_steps: int = 0
    num_alike: int = 0
    num_rows: float = 0.0
    num_switches: int = 0
    latest: float = 0.0
    classes: list[float] = field(default_factory=list)

    def add(self, low: float, high: float, num_rows: float) -> None:
        """Add a batch.

        Args:
            low: Smallest of its classes.
            high: Largest of its classes.
            num_rows: Number of its rows.
        """
        self.num_steps += 1
        if low != high:
            return
        self.num_switches += bool(self.num_alike) and self.latest != low
        self.num_alike += 1
        self.num_rows = min(self.num_rows + num_rows, 1e15)
        self.latest = low
        if low not in self.classes and len(self.classes) < _SEVERAL:
            self.classes.append(low)

    def are_sorted(self, needed_of_two: float) -> bool:
        """Return whether most batches have one class, and not all of them the same one.

        Args:
            needed_of_two: Rows that are needed if there are but two classes.
        """
        share = self.num_alike / max(self.num_steps, 1)
        if self.num_steps < _FEWEST_STEPS or share < LEAST_SHARE:
            return False
        if len(self.classes) >= _SEVERAL:
            return True
        # Who trains on true and generated rows in turn goes from one to the other all the time.
        is_in_turn = self.num_switches > _SWITCHES * self.num_alike
        is_back = self.num_switches >= _BACK_TWICE and share >= _OF_TWO
        return is_back and not is_in_turn and self.num_rows >= needed_of_two


def one_class_batches(
    rows: TensorRows,
    besides: Sequence[Beside],
    calls: AllCalls,
    memory: Memory,
    needed_of_two: float,
) -> dict[int, OneClassBatches]:
    """Return of which labels most batches have one class only.

    Args:
        rows: Labels of a step of training [R].
        besides: What is known of the losses they are the targets of [R].
        calls: The same labels, of all calls of their losses.
        memory: `batches`, what is known of those of at most 32 tensors.
        needed_of_two: Rows that are needed if there are but two classes.
    """
    known = memory.setdefault("batches", {})
    found = {}
    for at, (name, worker) in enumerate(zip(rows.names, rows.workers, strict=True)):
        low, high = float(calls.low[at]), float(calls.high[at])
        key = f"{worker}/{name}"
        if key not in known and len(known) >= MAX_SERIES:
            continue
        if not _can_tell(rows.shapes[at], besides[at], calls.sizes[at], low, high):
            continue
        batches = OneClassBatches(*known.get(key, ()))
        batches.add(low, high, calls.sizes[at])
        known[key] = [*astuple(batches)]
        # Of real numbers 0 and 1 may be what a script puts in for generated and true.
        may_be_code = besides[at].is_real and set(batches.classes) <= {0.0, 1.0}
        if not may_be_code and batches.are_sorted(needed_of_two):
            found[at] = batches
    return found


def _can_tell(
    shape: Sequence[int] | None, beside: Beside, num_rows: float, low: float, high: float
) -> bool:
    """Return whether a batch has one class a row, in rows enough that they differ if shuffled.

    A negative number is none of a class: it stands for rows that are skipped.
    """
    is_one_each = shape is not None and len(shape) > 0 and int(np.prod(shape[1:])) == 1
    are_classes = beside.is_of_classes and not beside.is_own
    is_whole = low.is_integer() and high.is_integer() and low >= 0
    return is_one_each and are_classes and is_whole and num_rows >= _FEWEST_ROWS
