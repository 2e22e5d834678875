"""Tensors within one step, by name."""

from __future__ import annotations

from collections import Counter
from typing import Any

__all__ = ["StepTensors"]


class StepTensors:
    """Tensors of one step in the order of their computation; those of one kind are numbered."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._values: dict[tuple[str, int], Any] = {}

    def next_number(self, prefix: str) -> int:
        """Return the number of the next tensor of a kind."""
        number = self._counts[prefix]
        self._counts[prefix] += 1
        return number

    def put(self, prefix: str, number: int, value: Any) -> None:
        """Add a tensor."""
        self._values[prefix, number] = value

    def add(self, prefix: str, value: Any) -> None:
        """Add the next tensor of a kind."""
        self.put(prefix, self.next_number(prefix), value)

    def named(self) -> dict[str, Any]:
        """Return the tensors by name: `dense/outputs`, or `dense/outputs_0` if there are more."""
        return {
            prefix if self._counts[prefix] == 1 else f"{prefix}_{number}": value
            for (prefix, number), value in self._values.items()
        }

    def clear_values(self) -> None:
        """Release the tensors; their numbers stay, for a traced step computes them again."""
        self._values.clear()
