"""Tensors within one step, by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["StepTensors", "joined", "separated"]

_SEPARATOR: Final = "\n"


class StepTensors:
    """Tensors of one step in the order of their computation; those of one kind are numbered."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._order: list[tuple[str, int]] = []  # JAX may bring values in another one
        self._values: dict[tuple[str, int], Any] = {}

    def next_number(self, prefix: str) -> int:
        """Return the number of the next tensor of a kind."""
        number = self._counts[prefix]
        self._counts[prefix] += 1
        self._order.append((prefix, number))
        return number

    def put(self, prefix: str, number: int, value: Any) -> None:
        """Add a tensor."""
        self._values[prefix, number] = value

    def add(self, prefix: str, value: Any) -> None:
        """Add the next tensor of a kind."""
        self.put(prefix, self.next_number(prefix), value)

    def named(self) -> dict[str, Any]:
        """Return the tensors by name: `dense/outputs`, or `dense/outputs_0` if there are more."""
        known = [key for key in self._order if key in self._values]
        return {
            prefix if self._counts[prefix] == 1 else f"{prefix}_{number}": self._values[
                prefix, number
            ]
            for prefix, number in known
        }

    def clear_values(self) -> None:
        """Release the tensors; their numbers stay, for a traced step computes them again."""
        self._values.clear()


def joined(named: Mapping[str, Any]) -> dict[str, Any]:
    """Return each tensor once, under all its names: an output is the input of the next layer."""
    names: dict[int, list[str]] = {}
    for at, (name, tensor) in enumerate(named.items()):
        names.setdefault(id(tensor), []).append(f"{at}:{name}")
    tensors = {id(tensor): tensor for tensor in named.values()}
    return {_SEPARATOR.join(names[key]): tensor for key, tensor in tensors.items()}


def separated(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was joined, by name and in the order of before."""
    found = {}
    for names, tensor in tensors.items():
        for name in names.split(_SEPARATOR):
            at, _, own = name.partition(":")
            found[int(at)] = own, tensor
    return {name: tensor for _, (name, tensor) in sorted(found.items())}
