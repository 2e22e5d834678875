"""The order in which the layers of a model are called, as the names of its tensors tell it.

Shape legend: R = rows of weights or gradients, one for each (tensor, worker); S = rows of signals,
the inputs and outputs of modules of one worker, in the order in which they were saved; L = layers.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

from rule_runtime.facts.linear_layers import may_be

__all__ = ["INPUT", "SIGNALS", "CallOrder", "Layer", "call_order"]

INPUT: Final = "_input_"
SIGNALS: Final = "_(input|output)_[0-9]+$"
"""Regular expression of the inputs and outputs of modules."""
_OUTPUT: Final = "_output_"
_OF_GRADIENTS: Final = "gradient/"


class Layer(NamedTuple):
    """A module with rows of its own.

    Attributes:
        rows: The rows [R] of its weights or gradients.
        root: Name of the model that it is a part of.
        begin: Where its first output is among the signals [S].
        is_shared: Whether another model has a module of the same name.
        inputs: Its inputs [S], of all of its calls.
        outputs: Its outputs [S], of all of its calls.
    """

    rows: list[int]
    root: str
    begin: int
    is_shared: bool
    inputs: list[int]
    outputs: list[int]


class CallOrder:
    """The order of calls, as far as names tell it.

    Args:
        names: Names of weights or gradients [R].
        chosen: Which of them to look at.
        signals: Names of the signals [S].

    Attributes:
        layers: The layers [L] in the order of calls, as far as that is known.
    """

    def __init__(
        self, names: tuple[str, ...], chosen: tuple[int, ...], signals: tuple[str, ...]
    ) -> None:
        self._signals = signals
        self._where = {name: row for row, name in enumerate(signals)}
        self.layers = self._layers(names, chosen)

    def of(self, name: str, kind: str) -> list[int]:
        """Return the inputs or outputs [S] of a module, of all of its calls.

        Args:
            name: Its name.
            kind: Which of the two.
        """
        found: list[int] = []
        while (row := self._where.get(f"{name}{kind}{len(found)}")) is not None:
            found.append(row)
        return found

    @cached_property
    def returned(self) -> dict[str, list[int]]:
        """The outputs [S] of each model."""
        return {root: self.of(root, _OUTPUT) for root in {layer.root for layer in self.layers}}

    @cached_property
    def made(self) -> list[list[int]]:
        """What is made of the output of each layer [L], before the output of the next one [S].

        Of a shared module it is what the model returns, if that layer is its last one.
        """
        last = {layer.root: at for at, layer in enumerate(self.layers)}
        begins, found = [len(self._signals)], []
        for at, layer in reversed(list(enumerate(self.layers))):
            end = begins[bisect_right(begins, layer.begin)]
            insort(begins, layer.begin)
            if layer.is_shared:
                rows = self.returned[layer.root] if last[layer.root] == at else []
            else:
                rows = [row for row in range(layer.begin, end) if _OUTPUT in self._signals[row]]
            own = set(layer.outputs)
            found.append([row for row in rows if row not in own])
        return found[::-1]

    def _layers(self, names: tuple[str, ...], chosen: tuple[int, ...]) -> list[Layer]:
        """Return the layers of weights or gradients [R]."""
        found: dict[tuple[str, str], list[int]] = {}
        for row in chosen:
            owner = names[row].removeprefix(_OF_GRADIENTS).rpartition(".")[0]
            # A module `x` may be called beside `my_x`: the longest name is that of the weight.
            called = (of for of in may_be(owner) if f"{of}{_OUTPUT}0" in self._where)
            module = next(called, None)
            if module is not None:
                root = owner.removesuffix(f"_{module}")
                found.setdefault((module, root), []).append(row)
        num_models = Counter(module for module, _ in found)
        mixed = {root for module, root in found if num_models[module] > 1}
        ordered = []
        for (module, root), own in found.items():
            begin, of_root = (self._where.get(f"{name}{_OUTPUT}0") for name in (module, root))
            is_shared = num_models[module] > 1
            # Which call is of which model is not known: models return in the order of their calls.
            known = of_root if root in mixed and of_root is not None else begin
            if begin is None or known is None or (is_shared and of_root is None):
                continue
            signals = self.of(module, INPUT), self.of(module, _OUTPUT)
            ordered.append(((known, begin), Layer(own, root, begin, is_shared, *signals)))
        return [layer for _, layer in sorted(ordered, key=lambda pair: pair[0])]


@lru_cache(maxsize=32)
def call_order(
    names: tuple[str, ...], chosen: tuple[int, ...], signals: tuple[str, ...]
) -> CallOrder:
    """Return the order of calls, which is the same at nearly all steps of a run.

    Args:
        names: Names of weights or gradients [R].
        chosen: Which of them to look at.
        signals: Names of the signals [S].
    """
    return CallOrder(names, chosen, signals)
