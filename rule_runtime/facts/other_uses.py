"""Whether what a linear layer returns may be used elsewhere, by a module or by a function.

The hook sees modules only. What functions do between them, as `F.relu`, a sum around a block or a
concatenation, shows in what modules take and containers return: a tensor that no module made. Some
can be told by their statistics, as activations and pooling; the others may have used any output
that was there before, and that fits into them.

Shape legend: R = rows, one for each (tensor, worker).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from rule_runtime.facts.linear_layers import LinearLayer, Signal
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["OtherUses"]

_NAME: Final = re.compile(r"(?P<module>.+)_(?P<kind>input|output)_(?P<number>\d+)$")
_CLOSE: Final = 1e-5
_OFF_ZERO: Final = 1e-3
_HUGE: Final = 1e100
_MATRIX: Final = 2
_TANH_OF_GELU: Final = math.sqrt(2 / math.pi)
_ACTIVATIONS: Final[tuple[Callable[[float], float], ...]] = (
    lambda x: x,  # ReLU, LeakyReLU and ELU above 0, and the largest element of each window
    math.tanh,
    lambda x: 0.5 + 0.5 * math.tanh(x / 2),  # sigmoid
    lambda x: x * (0.5 + 0.5 * math.tanh(x / 2)),  # SiLU
    lambda x: x * (0.5 + 0.5 * math.erf(x / math.sqrt(2))),  # GELU
    lambda x: x * (0.5 + 0.5 * math.tanh(_TANH_OF_GELU * (x + 0.044715 * x**3))),
    lambda x: max(x, 0.0) + math.log1p(math.exp(-abs(x))),  # softplus
)


class _Place(NamedTuple):
    """Of which module a row is.

    Attributes:
        module: Name of the module.
        is_input: Whether it is an input, and no output.
        number: Number of the input or output.
    """

    module: str
    is_input: bool
    number: int


class OtherUses:
    """What else may have used the outputs of linear layers at a step.

    Args:
        step: The step.
        rows: Inputs and outputs of modules [R], in the order of execution.
        layers: The linear layers.
        prints: A fingerprint of each row [R].
    """

    def __init__(
        self, step: StepView, rows: TensorRows, layers: Sequence[LinearLayer], prints: list[int]
    ) -> None:
        self._rows, self._prints = rows, prints
        self._places = [_place(name) for name in rows.names]
        self._row_of = {p: at for at, p in enumerate(zip(rows.names, rows.workers, strict=True))}
        self._stats = {name: rows.column(name) for name in ("min", "max", "mean", "std", "size")}
        self._roots = {layer.weight.removesuffix(f"_{layer.module}.weight") for layer in layers}
        modules = {place.module for place in self._places}
        self._containers = self._roots | {m[:at] for m in modules for at in _dots(m)}
        losses = step.tensors(collections=("losses",)).names
        self._losses = {name.rpartition("_output_")[0] for name in losses}
        self._of_functions: dict[str, list[int]] = {}
        self._explained: dict[int, bool] = {}

    @cached_property
    def _highest(self) -> npt.NDArray[np.float64]:
        """What each activation makes of the largest element of each row [activations, R]."""
        highest = [float(high) for high in self._stats["max"]]
        finite = [high if abs(high) < _HUGE else math.nan for high in highest]
        return np.array([[activation(high) for high in finite] for activation in _ACTIVATIONS])

    def may_be(self, signal: Signal, layer: LinearLayer) -> bool:
        """Return whether anything but a layer may use a signal that goes into it.

        Args:
            signal: The output of a linear layer, and what became of it.
            layer: The layer that it goes into.
        """
        worker = layer.worker
        return (
            any(self._is_shared(at, layer) for at in signal.path)
            or self._is_returned(signal, layer)
            or any(
                self._fits(at, signal) and not self._is_explained(at)
                for at in self.made_by_functions(worker)
            )
        )

    def made_by_functions(self, worker: str) -> list[int]:
        """Return the rows, each tensor once, that no module made.

        Args:
            worker: The worker.
        """
        if worker not in self._of_functions:
            own = self._own(worker)
            known = {self._prints[at] for at in own if self._is_known(self._places[at])}
            found: dict[int, int] = {}
            for at in own:
                if self._prints[at] not in known:
                    found.setdefault(self._prints[at], at)
            self._of_functions[worker] = list(found.values())
        return self._of_functions[worker]

    def _own(self, worker: str) -> list[int]:
        return [at for at, of in enumerate(self._rows.workers) if of == worker]

    def _is_shared(self, signal: int, layer: LinearLayer) -> bool:
        """Return whether several modules take a row, or one that changes nothing takes it later."""
        end = self._row_of[f"{layer.module}_output_0", layer.worker]
        num_takers = 0
        for at in self._own(layer.worker):
            place = self._places[at]
            is_taken = place.is_input and self._prints[at] == self._prints[signal]
            if not is_taken or place.module in self._containers:
                continue
            out = self._row_of.get((f"{place.module}_output_{place.number}", layer.worker))
            is_passed = out is not None and self._prints[out] == self._prints[signal] and out < end
            num_takers += not is_passed
        return num_takers > 1

    def _is_returned(self, signal: Signal, layer: LinearLayer) -> bool:
        """Return whether a module that both layers are in returns a signal."""
        prints = {self._prints[at] for at in signal.path}
        for at in self._own(layer.worker):
            module, is_input, _ = self._places[at]
            around = f"{module}."
            is_around = module in self._roots or (
                layer.module.startswith(around) and signal.source.module.startswith(around)
            )
            if not is_input and is_around and self._prints[at] in prints:
                return True
        return False

    def _fits(self, at: int, signal: Signal) -> bool:
        """Return whether a row was computed behind a linear layer, and has as many channels."""
        source, worker = signal.source, signal.source.worker
        begin = self._row_of[f"{source.module}_output_0", worker]
        into = self._row_of[f"{source.module}_input_0", worker]
        if at < begin or self._prints[at] == self._prints[into]:
            return False
        shape, of_source = self._rows.shapes[at] or (), self._rows.shapes[begin] or ()
        axis = -1 if of_source[-1] == source.outputs else 1
        return len(shape) >= _MATRIX and shape[axis] >= source.outputs

    def _is_known(self, place: _Place) -> bool:
        """Return whether a row was made by a module, or came from outside the model."""
        if place.is_input:
            is_target = place.module in self._losses and place.number > 0
            return place.module in self._roots or is_target
        return place.module not in self._containers

    def _is_explained(self, at: int) -> bool:
        """Return whether a row is what an activation, pooling or softmax makes of another one."""
        if at not in self._explained:
            self._explained[at] = self._is_softmax(at) or bool(self._may_be_made_of(at).any())
        return self._explained[at]

    def _may_be_made_of(self, at: int) -> npt.NDArray[np.bool_]:
        """Return of which rows [R] a row may be an activation, or what pooling leaves of them."""
        low, high, mean = (self._stats[name] for name in ("min", "max", "mean"))
        size, worker = self._stats["size"], self._rows.workers[at]
        others = np.array([of == worker for of in self._rows.workers], dtype=bool)
        others &= (np.array(self._prints) != self._prints[at]) & (size >= size[at])
        is_activated = (np.abs(high[at] - self._highest) <= _CLOSE * np.abs(self._highest)).any(0)
        # None of them goes further below 0 than what it is given.
        is_activated &= low[at] >= np.minimum(low, 0) * (1 + _CLOSE)
        is_mean = np.abs(mean[at] - mean) <= _CLOSE * np.abs(mean)
        is_mean &= (size > size[at]) & (np.abs(mean) > _OFF_ZERO * self._stats["std"])
        found: npt.NDArray[np.bool_] = others & (is_activated | is_mean)
        return found

    def _is_softmax(self, at: int) -> bool:
        """Return whether a row has probabilities, or logarithms of such."""
        low, high, mean = (self._stats[name][at] for name in ("min", "max", "mean"))
        shape = self._rows.shapes[at] or ()
        if high <= 0:
            return True
        return bool(low >= 0) and any(n > 1 and abs(mean * n - 1) < _CLOSE for n in shape[1:])


def _place(name: str) -> _Place:
    parts = _NAME.match(name)
    if parts is None:
        return _Place(name, is_input=False, number=0)
    return _Place(parts["module"], parts["kind"] == "input", int(parts["number"]))


def _dots(module: str) -> list[int]:
    return [at for at, letter in enumerate(module) if letter == "."]
