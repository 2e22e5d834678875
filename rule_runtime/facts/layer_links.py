"""Pairs of linear layers with no activation between them, by the statistics of their signals.

The hook sees modules only. Functions between them, such as `F.relu` or a sum around a block, show
as inputs of modules that no module returned. A pair is certain if nothing else can have used the
signal between its layers.

Shape legend: S = inputs and outputs of modules ("signals"), one for each (tensor, worker).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rule_runtime.facts.layers import Layers, LinearLayer, Signals

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["LayerLinks", "Link"]

_IMAGE: Final = 3
"""Dimensions of the smallest tensor that can be pooled."""
_GROWS: Final = 1.001
"""Least factor by which dropout lets the extremes grow."""
_SELU: Final = 1.0507
"""The factor of SELU."""
_SAME_RATIO: Final = 0.05
"""Relative difference between the factors of extremes and of squares in dropout, by chance."""
_CLOSE: Final = 1e-5
"""Relative error of float32 within which two extremes are the same."""
_OFF_ZERO: Final = 1e-3
"""Mean, in standard deviations, from which on two equal means are no chance."""
_HUGE: Final = 1e100
"""Largest number whose activations do not overflow."""
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


class Link(NamedTuple):
    """A linear layer whose output goes into another one without an activation.

    Attributes:
        source: The first layer.
        target: The second layer.
        path: Rows of the first layer's output, and of the outputs of the modules between [S].
        is_direct: Whether these modules are dropout only, not normalisation or pooling.
    """

    source: LinearLayer
    target: LinearLayer
    path: tuple[int, ...]
    is_direct: bool


class _Carried(NamedTuple):
    """What became of the output of a linear layer: see `Link`."""

    source: LinearLayer
    path: tuple[int, ...]
    is_direct: bool


class LayerLinks:
    """Which linear layers of a step feed another one without an activation.

    Args:
        step: The step.

    Attributes:
        found: The pairs of layers that could be one layer.
        num_between: Normalisation and pooling modules that take the output of a linear layer.
    """

    def __init__(self, step: StepView) -> None:
        self._signals, self._layers = step.fact(Signals), step.fact(Layers)
        rows = self._signals.rows
        self._stats = {
            name: rows.column(name) for name in ("min", "max", "mean", "std", "size", "l2")
        }
        names = {place.module for place in self._signals.places}
        self._containers = {name[:at] for name in names for at in _dots(name)}
        losses = step.tensors(collections=("losses",)).names
        self._losses = {name.rpartition("_output_")[0] for name in losses}
        self._roots = {
            layer.weight.removesuffix(f"_{layer.module}.weight") for layer in self._layers.linear
        }
        self._containers |= self._roots
        self.num_between = 0
        self._unknown: dict[str, list[int]] = {}
        carried = self._follow()
        links = (self._link(layer, carried) for layer in self._layers.linear)
        self.found = [link for link in links if link is not None and not self._has_other_use(link)]

    def _link(self, layer: LinearLayer, carried: dict[tuple[int, str], _Carried]) -> Link | None:
        """Return the link that ends in a layer; None if there is none, or a bottleneck is in it."""
        found = carried.get((self._signals.prints[layer.into], layer.worker))
        if found is None or found[0].module == layer.module:
            return None
        source, path, is_direct = found
        is_narrow = source.outputs < min(source.inputs, layer.outputs)
        return None if is_narrow else Link(source, layer, path, is_direct)

    def _follow(self) -> dict[tuple[int, str], _Carried]:
        """Return what became of the outputs of linear layers, by print and worker."""
        prints, varies = self._signals.prints, self._stats["std"] > 0
        carried = {
            (prints[layer.out], layer.worker): _Carried(layer, (layer.out,), is_direct=True)
            for layer in self._layers.linear
            if varies[layer.out]
        }
        linear = {layer.out for layer in self._layers.linear}
        for out, place in enumerate(self._signals.places):  # in the order of calls
            worker = self._signals.rows.workers[out]
            into = self._signals.at(place.module, "input", worker, place.number)
            if place.kind != "output" or into is None or out in linear or not varies[out]:
                continue
            signal = carried.get((prints[into], worker))
            if signal is None or (prints[out], worker) in carried:
                continue
            is_dropout = self._is_dropout(place.module, worker, into, out)
            if is_dropout or self._is_between(place.module, worker, into, out):
                self.num_between += not is_dropout
                path, is_direct = (*signal.path, out), signal.is_direct and is_dropout
                carried[prints[out], worker] = _Carried(signal.source, path, is_direct)
        return carried

    def _is_between(self, module: str, worker: str, into: int, out: int) -> bool:
        """Return whether a module is a normalisation layer, or pools."""
        old, new = self._signals.rows.shapes[into] or (), self._signals.rows.shapes[out] or ()
        if self._layers.is_normalisation(module, worker):
            return old == new
        is_pooled = len(old) == len(new) >= _IMAGE and old[:2] == new[:2]
        is_smaller = is_pooled and math.prod(new) < math.prod(old)
        return is_smaller and not self._layers.has_parameters(module, worker)

    def _is_dropout(self, module: str, worker: str, into: int, out: int) -> bool:
        """Return whether a module drops some elements and multiplies the others by one factor.

        With a share p dropped the extremes grow by 1 / (1 - p), and the squares as much. SELU is
        the only usual activation that lets numbers grow, those above 0 by a factor of its own.
        """
        shapes = self._signals.rows.shapes
        if self._layers.has_parameters(module, worker) or shapes[into] != shapes[out]:
            return False
        low, high, size = (self._stats[name] for name in ("min", "max", "l2"))
        if not (low[into] < 0 < high[into] and size[into] > 0):
            return False
        ratios = (low[out] / low[into], high[out] / high[into])
        factor, squares = max(ratios), (size[out] / size[into]) ** 2
        is_larger = min(ratios) >= 0 and factor > _GROWS and abs(factor - _SELU) > _GROWS - 1
        return bool(is_larger and abs(squares / factor - 1) < _SAME_RATIO)

    def _has_other_use(self, link: Link) -> bool:
        """Return whether anything but the second layer may use the signal between two layers."""
        own = self._own(link.target.worker)
        return (
            any(self._num_takers(at, own, link.target) > 1 for at in link.path)
            or any(self._is_returned(at, link, own) for at in link.path)
            or any(self._may_contain(at, link) for at in self._of_functions(link.target.worker))
        )

    def _own(self, worker: str) -> list[int]:
        return [at for at, of in enumerate(self._signals.rows.workers) if of == worker]

    def _num_takers(self, signal: int, own: list[int], target: LinearLayer) -> int:
        """Return how many modules take a signal; modules that pass it on unchanged do not count."""
        prints, places = self._signals.prints, self._signals.places
        count = 0
        for at in own:
            place = places[at]
            is_input = place.kind == "input" and place.module not in self._containers
            if not is_input or prints[at] != prints[signal]:
                continue
            out = self._signals.at(place.module, "output", target.worker, place.number)
            is_passed = out is not None and prints[out] == prints[signal] and out < target.out
            count += not is_passed
        return count

    def _is_returned(self, signal: int, link: Link, own: list[int]) -> bool:
        """Return whether a module that both layers are in returns a signal."""
        for at in own:
            module, kind, _ = self._signals.places[at]
            inside = (link.source.module, link.target.module)
            is_around = module in self._roots or all(n.startswith(f"{module}.") for n in inside)
            is_same = self._signals.prints[at] == self._signals.prints[signal]
            if kind == "output" and is_around and is_same:
                return True
        return False

    def _of_functions(self, worker: str) -> list[int]:
        """Return signals, each tensor once, that functions made of an unknown number of others.

        No module made them, the model was not given them, and they are no activation, pooling or
        softmax of one signal.
        """
        if worker not in self._unknown:
            own = self._own(worker)
            given = {self._signals.prints[at] for at in own if self._is_given(at)}
            first = {self._signals.prints[at]: at for at in reversed(own)}
            made = [at for number, at in first.items() if number not in given]
            self._unknown[worker] = [
                at for at in made if not (self._is_softmax(at) or self._may_be_made_of(at, own))
            ]
        return self._unknown[worker]

    def _is_given(self, at: int) -> bool:
        """Return whether a module made a signal, or it came from outside the model."""
        module, kind, number = self._signals.places[at]
        if kind == "input":
            return module in self._roots or (module in self._losses and number > 0)
        return module not in self._containers

    def _may_contain(self, at: int, link: Link) -> bool:
        """Return whether a signal comes after the first layer and has as many channels."""
        source, shapes, prints = link.source, self._signals.rows.shapes, self._signals.prints
        if at < source.out or prints[at] == prints[source.into]:
            return False
        shape, of_source = shapes[at] or (), shapes[source.out] or ()
        axis = -1 if of_source[-1] == source.outputs else 1
        return len(shape) > 1 and shape[axis] >= source.outputs

    def _may_be_made_of(self, at: int, own: list[int]) -> bool:
        """Return whether a signal may be an activation of another one, or pooled from it."""
        others = np.array([o for o in own if self._signals.prints[o] != self._signals.prints[at]])
        if not others.size:
            return False
        low, mean, std, size = (
            self._stats[name][others] for name in ("min", "mean", "std", "size")
        )
        now = {name: self._stats[name][at] for name in self._stats}
        highest = self._highest[:, others]
        is_activated = (np.abs(now["max"] - highest) <= _CLOSE * np.abs(highest)).any(0)
        # No activation goes further below 0 than its input.
        is_activated &= now["min"] >= np.minimum(low, 0) * (1 + _CLOSE)
        is_mean = np.abs(now["mean"] - mean) <= _CLOSE * np.abs(mean)
        is_mean &= (size > now["size"]) & (np.abs(mean) > _OFF_ZERO * std)
        return bool(((size >= now["size"]) & (is_activated | is_mean)).any())

    @cached_property
    def _highest(self) -> npt.NDArray[np.float64]:
        """What each activation makes of the largest element of each signal [activations, S]."""
        finite = [high if abs(high) < _HUGE else math.nan for high in self._stats["max"].tolist()]
        return np.array([[activation(high) for high in finite] for activation in _ACTIVATIONS])

    def _is_softmax(self, at: int) -> bool:
        """Return whether a signal has probabilities, or logarithms of such."""
        low, high, mean = (self._stats[name][at] for name in ("min", "max", "mean"))
        shape = self._signals.rows.shapes[at] or ()
        if high <= 0:
            return True
        return bool(low >= 0) and any(n > 1 and abs(mean * n - 1) < _CLOSE for n in shape[1:])


def _dots(module: str) -> list[int]:
    return [at for at, letter in enumerate(module) if letter == "."]
