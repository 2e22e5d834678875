"""The layers of a model: their parameters, the order of calls, their inputs and outputs.

Shape legend: S = inputs and outputs of modules ("signals"), one for each (tensor, worker).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cached_property
from itertools import accumulate, compress, count, takewhile
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rule_runtime.facts.gradient_names import parameters_of
from rule_runtime.facts.layer_names import (
    LINEAR,
    SIGNALS,
    LayerKinds,
    Place,
    WeightShape,
    owners_of,
    place_of,
)
from rule_runtime.numerics.row_memory import fingerprints
from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["IMAGE", "MATRIX", "Layers", "LinearLayer", "Place", "Signals", "tensor_fingerprints"]

_KINDS: Final = ("input", "output")
_COMPARED: Final = ("size", "min", "max", "mean", "std", "l2")
MATRIX: Final = 2
"""Number of dimensions of a matrix."""
IMAGE: Final = 3
"""Minimum number of dimensions of images: images, channels, and one or more of space."""
_IN_ONE: Final = (
    "FSDP keeps all weights in one flat parameter, so that no layer has its own: pass "
    "use_orig_params=True, or use fully_shard"
)
_NONE: Final = (
    "no linear layer was saved with its input, output and whole weight; if weights are divided "
    "among ranks, save all parts (include_workers=all)"
)


def tensor_fingerprints(rows: TensorRows) -> npt.NDArray[np.uint32]:
    """Return a number for each row; rows with equal numbers are the same tensor."""
    return fingerprints([rows.column(name) for name in _COMPARED])


class Signals:
    """Inputs and outputs of modules at a step, in saved order.

    Attributes:
        rows: The inputs and outputs [S].
        places: Module, and input or output, of each [S].
    """

    def __init__(self, step: StepView) -> None:
        self.rows = step.tensors(regex=(SIGNALS,))
        self.places = [place_of(name) for name in self.rows.names]
        pairs = zip(self.places, self.rows.workers, strict=True)
        self._row_of = {(*place, worker): at for at, (place, worker) in enumerate(pairs)}

    @cached_property
    def fingerprints(self) -> list[int]:
        """A number for each signal [S]; signals with equal numbers are the same tensor."""
        return [int(number) for number in tensor_fingerprints(self.rows)]

    def at(self, module: str, kind: str, worker: str, number: int = 0) -> int | None:
        """Return the row of a module's `input` or `output`; None if it was not saved.

        The second call of a module has number 1.
        """
        return self._row_of.get((module, kind, number, worker))


class LinearLayer(NamedTuple):
    """A linear layer or a convolution.

    Attributes:
        weight: Name of its weight.
        outputs: Number of its outputs, or channels.
        inputs: Number of its inputs, or channels.
        into: Row of its input [S].
        out: Row of its output, after the activation [S].
        activation: Activation that its output went through, inside the layer; `linear` for none,
            "" if unknown.
    """

    module: str
    worker: str
    weight: str
    outputs: int
    inputs: int
    into: int
    out: int
    activation: str = LINEAR


class Layers:
    """The modules that have parameters and were called at a step."""

    def __init__(self, step: StepView) -> None:
        self._step = step
        self._signals = step.fact(Signals)
        parameters = step.tensors(collections=("weights", "biases"))
        gradients = step.tensors(collections=("gradients",))
        named = list(zip(parameters.names, parameters.workers, strict=True))
        self._shapes = dict(zip(named, parameters.shapes, strict=True))
        named += zip(parameters_of(step, gradients), gradients.workers, strict=True)
        self._parameters: dict[tuple[str, str], set[str]] = {}
        for name, worker in named:
            module = self._module_of(name, worker)
            if module is not None:
                self._parameters.setdefault((module, worker), set()).add(name)

    def _module_of(self, parameter: str, worker: str) -> str | None:
        """Return the module of a parameter, if it was called."""
        called = (
            name
            for name in owners_of(parameter)
            if any(self._signals.at(name, kind, worker) is not None for kind in _KINDS)
        )
        return next(called, None)

    def shapes_of(self, module: str, worker: str) -> list[tuple[int, ...]]:
        """Return the shapes of a module's own parameters; () for an unknown shape."""
        names: Iterable[str] = self._parameters.get((module, worker), ())
        return [self._shapes.get((name, worker)) or () for name in names]

    def shapes_at(
        self, parameter: str, worker: str, kind: str = "input"
    ) -> list[tuple[int, ...]] | None:
        """Return the shapes of all inputs, or outputs, of a parameter's layer, call by call.

        There are none if other layers were called, and this one was not. None if unknown.
        """
        module = self._module_of(parameter, worker)
        if module is None:
            return [] if self.in_order.get(worker) else None
        calls = (self._signals.at(module, kind, worker, number) for number in count())
        known = takewhile(lambda at: at is not None, calls)
        return [self._signals.rows.shapes[at or 0] or () for at in known] or None

    def before_and_after(
        self, worker: str, learning: Collection[str]
    ) -> tuple[frozenset[str], frozenset[str]]:
        """Return parameters of the layers called before the first and after the last learning one.

        A parameter learns if its gradient is not zero. If other parameters than those of layers
        learn, such as a prompt, no layer is before the first one. Layers inside a module with
        learning parameters, such as the base of LoRA, are not before it.
        """
        layers = self.in_order.get(worker, [])
        learns = [at for at, layer in enumerate(layers) if not layer.isdisjoint(learning)]
        if not learns:
            return frozenset(), frozenset()
        is_placed = frozenset().union(*layers).issuperset(learning)
        around = tuple(f"{name.rpartition('.')[0]}." for name in learning if "." in name)
        before = frozenset().union(*layers[: learns[0]] if is_placed else ())
        after = frozenset().union(*layers[learns[-1] + 1 :])
        return frozenset(name for name in before if not name.startswith(around)), after

    def frozen_trunk(
        self, worker: str, frozen: Collection[str], learning: Collection[str]
    ) -> frozenset[str]:
        """Return the frozen parameters before all that learn; none if adapters are among them.

        An adapter is a layer that learns and is called before a frozen one, gets the same input as
        a frozen one, or shares a module with it that does not have all layers that learn.
        """
        modules = self._modules_in_order.get(worker, ())
        owned = [(module, self._parameters[module, worker]) for module in modules]
        learns = [at for at, (_, names) in enumerate(owned) if not names.isdisjoint(learning)]
        is_idle = [not names.isdisjoint(frozen) for _, names in owned]
        if not learns or any(is_idle[learns[0] :]):
            return frozenset()
        idle, adapters = list(compress(modules, is_idle)), [modules[at] for at in learns]
        around = [_with_parents(module) for module in adapters]
        shared = frozenset().union(*around) - frozenset.intersection(*around)
        is_around = any(not shared.isdisjoint(_with_parents(module)) for module in idle)
        read, given = (self._inputs(modules, worker) for modules in (idle, adapters))
        before, _ = self.before_and_after(worker, learning)
        return frozenset() if is_around or read & given else before.intersection(frozen)

    def bypassed(self, worker: str, learning: Collection[str]) -> frozenset[str]:
        """Return parameters of layers that do not learn, if the next layer does from their input.

        They are a part of their own, such as a head whose loss has the weight 0. Layers that return
        a constant are omitted, because they may be dead.
        """
        found, idle = set[str](), list[str]()
        for module in self._modules_in_order.get(worker, ()):
            if self._parameters[module, worker].isdisjoint(learning):
                idle.append(module)
                continue
            if idle:
                first, own = _with_parents(idle[0]), _with_parents(module)
                out = self._signals.at(idle[-1], "output", worker)
                varies = out is not None and self._signals.rows.column("std")[out] > 0
                if varies and self._inputs(first - own, worker) & self._inputs(own - first, worker):
                    found.update(*(self._parameters[one, worker] for one in idle))
            idle = []
        return frozenset(found)

    def _inputs(self, modules: Iterable[str], worker: str) -> set[int]:
        """Return the fingerprints of the inputs of modules."""
        rows = [self._signals.at(module, "input", worker) for module in modules]
        return {self._signals.fingerprints[at] for at in rows if at is not None}

    @cached_property
    def in_order(self) -> dict[str, list[set[str]]]:
        """Parameters of each worker's layers, in call order."""
        return {
            worker: [self._parameters[module, worker] for module in modules]
            for worker, modules in self._modules_in_order.items()
        }

    @cached_property
    def _modules_in_order(self) -> dict[str, list[str]]:
        """Layers of each worker, in call order.

        Modules with the same name in two models are omitted, because their order is unknown.
        """
        ends = {key: self._signals.at(key[0], "output", key[1]) for key in self._parameters}
        begins = {
            key: out
            for key, out in ends.items()
            if out is not None
            and len({name.rpartition(".")[0] for name in self._parameters[key]}) == 1
        }
        found: dict[str, list[str]] = {}
        for module, worker in sorted(begins, key=begins.__getitem__):
            found.setdefault(worker, []).append(module)
        return found

    @cached_property
    def linear(self) -> list[LinearLayer]:
        """Linear layers and convolutions in call order, detected by shape.

        The outputs and inputs of a weight must match the channels of output and input. So
        embeddings, normalisations and depthwise convolutions are excluded.
        """
        found, kinds = [], self._step.fact(LayerKinds)
        for (module, worker), names in self._parameters.items():
            into, out = (self._signals.at(module, kind, worker) for kind in _KINDS)
            for name in sorted(names):
                shape = WeightShape.of(name, self._shapes.get((name, worker)) or ())
                if shape is not None and into is not None and out is not None:
                    activation = kinds.activation_in(module, name, worker)
                    sizes = (shape.outputs, shape.inputs)
                    layer = LinearLayer(module, worker, name, *sizes, into, out, activation)
                    found += [layer] if self._fits(layer, shape) else []
        return sorted(found, key=lambda layer: layer.out)

    def _fits(self, layer: LinearLayer, weight: WeightShape) -> bool:
        """Return whether the sizes of input and output match the weight."""
        taken, given = (self._signals.rows.shapes[at] or () for at in (layer.into, layer.out))
        is_long_enough = min(len(taken), len(given)) >= MATRIX + bool(weight.kernel)
        return is_long_enough and any(
            (given[axis], taken[axis]) == (layer.outputs, layer.inputs) for axis in weight.axes
        )

    @property
    def why_none_is_linear(self) -> str:
        """The missing data if no layer is linear."""
        names = self._step.tensors(collections=("gradients",)).names
        return _IN_ONE if any("_flat_param" in name for name in names) else _NONE


def _with_parents(module: str) -> frozenset[str]:
    """Return a module and those around it: a.b, a."""
    return frozenset(accumulate(module.split("."), "{}.{}".format))
