"""Finds linear layers without an activation between them, also across transparent modules.

The hook sees only modules. Results of functions, such as `F.relu` or a residual sum, are inputs of
a module that no module returned. An output of a Keras layer is known after the activation inside
the layer, so only layers without one start a pair.

Shape legend: S = inputs and outputs of modules ("signals"), one for each (tensor, worker).
"""

from __future__ import annotations

import math
from collections.abc import Container
from typing import Final, NamedTuple

import numpy as np

from rule_runtime.facts.layer_names import LINEAR, LayerKinds
from rule_runtime.facts.layers import IMAGE, Layers, LinearLayer, Signals
from rule_runtime.numerics.activations import ROUNDING
from rule_runtime.trial.step_view import StepView

__all__ = ["Link", "layer_links"]

_POOLING: Final = "Pooling"
"""Part of the type of Keras's pooling layers, which may have the channels last."""
_SELU: Final = 1.0507
"""The factor of SELU above 0; no other usual activation has it."""
_APART: Final = 1e-3
"""Minimum relative difference between the factors of dropout and SELU, and from 1."""
_BY_CHANCE: Final = 0.05
"""Relative difference by chance between the factors of extremes and of squares in dropout."""
_STANDARD: Final = 1e-3
"""Maximum distance from mean 0 and variance 1 after a normalisation without parameters."""


class _Carried(NamedTuple):
    """A signal that transparent modules derived from another signal; see `Link`."""

    path: tuple[int, ...]
    is_direct: bool


class Link(NamedTuple):
    """A linear layer that feeds another one without an activation.

    Attributes:
        path: Rows of the first layer's output, and of the outputs of the modules in between [S].
        is_direct: Whether all these modules are dropout.
    """

    source: LinearLayer
    target: LinearLayer
    path: tuple[int, ...]
    is_direct: bool


def layer_links(step: StepView) -> list[Link]:
    """Return the linear layers of a step that feed another one without an activation.

    A pair is ignored if the width in between is smaller than both others (a bottleneck), or if
    anything else may use the signal in between.
    """
    return [link for worker in step.workers for link in _Links(step, worker).find()]


class _Links:
    """The links of one worker."""

    def __init__(self, step: StepView, worker: str) -> None:
        self._signals, self._layers, self._worker = step.fact(Signals), step.fact(Layers), worker
        rows, self._places = self._signals.rows, self._signals.places
        self._shapes = [shape or () for shape in rows.shapes]
        self._fingerprints = self._signals.fingerprints
        self._size, self._low, self._high, self._mean, self._std, self._l2 = (
            rows.column(name) for name in ("size", "min", "max", "mean", "std", "l2")
        )
        self._own = [at for at, of in enumerate(rows.workers) if of == worker]
        self._kinds = step.fact(LayerKinds)
        linear = self._layers.linear
        self._linear = {layer.out: layer for layer in linear if layer.worker == worker}
        self._models = {_model_of(layer) for layer in self._linear.values()}
        names = {self._places[at].module for at in self._own}
        parents = {name[:at] for name in names for at, letter in enumerate(name) if letter == "."}
        self._containers = parents | self._models

    def find(self) -> list[Link]:
        """Return the links in call order."""
        begun_by, found = self._follow(), []
        for target in self._linear.values():
            begun = begun_by.get(self._fingerprints[target.into])
            if begun is None or self._linear[begun.path[0]].module == target.module:
                continue
            source, path, is_direct = self._linear[begun.path[0]], begun.path, begun.is_direct
            is_narrow = source.outputs < min(source.inputs, target.outputs)
            if not is_narrow and not any(self._is_shared(at, source, target) for at in path):
                found.append(Link(source, target, path, is_direct))
        functions = self._made_by_functions(begun_by) if found else []
        return [of for of in found if not any(self._may_contain(at, of.source) for at in functions)]

    def _follow(self) -> dict[int, _Carried]:
        """Return the signals that start in linear layers, by fingerprint.

        Dropout, normalisation and pooling are transparent, and all modules and functions that keep
        the elements: identity, flatten, reshape. The latter have the fingerprint of their input.
        """
        found: dict[int, _Carried] = {}
        latest: _Carried | None = None
        for at in self._own:  # in call order
            key = self._fingerprints[at]
            if key in found or not self._std[at] > 0:  # constants are equal by chance
                continue
            module, kind, number = self._places[at]
            if at in self._linear and not self._shows_activation(at):
                latest = None
            elif at in self._linear:
                found[key] = latest = _Carried((at,), is_direct=True)
            elif kind == "input":
                if latest is not None and self._is_dropout(latest.path[-1], at, is_exact=True):
                    found[key] = latest._replace(path=(*latest.path, at))
            elif (into := self._signals.at(module, "input", self._worker, number)) is not None:
                begun = found.get(self._fingerprints[into])
                has_parameters = bool(self._layers.shapes_of(module, self._worker))
                is_dropout = not has_parameters and self._is_dropout(into, at)
                shows_relu = self._low[at] < 0  # a pooled output may be positive
                if (
                    begun
                    and shows_relu
                    and (is_dropout or self._is_norm_or_pooling(module, into, at))
                ):
                    is_direct = begun.is_direct and is_dropout
                    found[key] = latest = _Carried((*begun.path, at), is_direct)
        return found

    def _shows_activation(self, at: int) -> bool:
        """Return whether an activation after a linear layer would change its output.

        ReLU keeps an output that has no negative element.
        """
        return self._linear[at].activation == LINEAR and bool(self._low[at] < 0)

    def _is_norm_or_pooling(self, module: str, into: int, out: int) -> bool:
        """Return whether a module normalises its input, or makes images smaller."""
        old, new = self._shapes[into], self._shapes[out]
        parameters = self._layers.shapes_of(module, self._worker)
        if parameters:  # Keras has the moving averages among them
            return old == new and [len(shape) for shape in parameters] in ([1] * 2, [1] * 4)
        if _POOLING in self._kinds.of(module, self._worker).type:
            return len(old) == len(new)
        is_image = len(old) == len(new) >= IMAGE and old[:2] == new[:2]
        is_gated = is_image and old == (*new[:-1], 2 * new[-1])
        is_smaller = is_image and not is_gated and math.prod(new) < math.prod(old)
        is_standard = max(abs(self._mean[out]), abs(self._std[out] - 1)) < _STANDARD
        return is_smaller or bool(old == new and is_standard)

    def _is_dropout(self, into: int, out: int, *, is_exact: bool = False) -> bool:
        """Return whether some elements were dropped and the others scaled by one factor.

        If a share p is dropped, extremes and squares grow by 1 / (1 - p). Of usual activations,
        only SELU also increases numbers. For functions, only both extremes are known.
        """
        is_around_zero = self._low[into] < 0 < self._high[into]
        if not is_around_zero or self._shapes[into] != self._shapes[out]:
            return False
        factors = (self._low[out] / self._low[into], self._high[out] / self._high[into])
        factor, squares = max(factors), (self._l2[out] / self._l2[into]) ** 2
        if is_exact and factor - min(factors) > ROUNDING * factor:
            return False
        is_other = min(abs(factor - 1), abs(factor - _SELU)) > _APART and factor > 1
        return bool(min(factors) >= 0 and is_other and abs(squares / factor - 1) < _BY_CHANCE)

    def _is_shared(self, signal: int, source: LinearLayer, target: LinearLayer) -> bool:
        """Return whether two modules use a signal, or a module around both layers returns it."""
        takers = 0
        for at in self._own:
            module, kind, number = self._places[at]
            if self._fingerprints[at] != self._fingerprints[signal]:
                continue
            is_around = all(f"{one.module}.".startswith(f"{module}.") for one in (source, target))
            if kind == "output" and (is_around or module in self._models):
                return True
            out = self._signals.at(module, "output", self._worker, number)
            is_same = out is not None and self._fingerprints[out] == self._fingerprints[signal]
            takers += kind == "input" and module not in self._containers and not is_same
        return takers > 1

    def _made_by_functions(self, explained: Container[int]) -> list[int]:
        """Return signals that functions may have derived from any number of others.

        No module returned them, they are no model inputs, and no activation or pooling of a
        module's output: ReLU and pooling keep the largest element or the mean. `explained` has the
        fingerprints of the results of transparent modules and functions.
        """
        given = [at for at in self._own if self._is_given(at)]
        known = {self._fingerprints[at] for at in given}
        high, mean, size = self._high[given], self._mean[given], self._size[given]
        found = []
        for at in self._own:
            is_same = (high == self._high[at]) & (size >= self._size[at])
            is_near = np.abs(mean - self._mean[at]) <= ROUNDING * np.abs(mean)
            is_made = (is_same | (is_near & (size > self._size[at]))).any()
            if not (
                self._fingerprints[at] in known or self._fingerprints[at] in explained or is_made
            ):
                found.append(at)
        return found

    def _is_given(self, at: int) -> bool:
        """Return whether a module returned a signal, or it came from outside the model."""
        module, kind, _ = self._places[at]
        return module in self._models if kind == "input" else module not in self._containers

    def _may_contain(self, at: int, source: LinearLayer) -> bool:
        """Return whether a signal follows a layer and has at least as many channels."""
        shape = self._shapes[at]
        axis = -1 if self._shapes[source.out][-1] == source.outputs else 1
        is_input = self._fingerprints[at] == self._fingerprints[source.into]
        return at > source.out and not is_input and len(shape) > 1 and shape[axis] >= source.outputs


def _model_of(layer: LinearLayer) -> str:
    """Return the model of a layer; modules of a further model begin with its name."""
    owner = layer.weight.rpartition(".")[0]
    is_of_further = owner == layer.module
    return owner.partition("_")[0] if is_of_further else owner.removesuffix(f"_{layer.module}")
