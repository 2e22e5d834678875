"""The layers of a model: their parameters, the order of calls, their inputs and outputs.

Shape legend: S = inputs and outputs of modules ("signals"), one for each (tensor, worker).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from hook_layer.known_collections import KNOWN_COLLECTIONS
from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.facts.gradient_names import parameters_of
from rule_runtime.numerics.row_memory import fingerprints

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["MODULE_IO", "Flow", "Layer", "Layers", "LinearLayer", "Place", "Signals"]

_SIGNAL: Final = re.compile(r"(?P<module>.+)_(?P<kind>input|output)_(?P<number>[0-9]+)$")
MODULE_IO: Final = CollectionConfig("module_io", {"save_interval": "10"})
"""What the hook saves for a rule that looks at inputs and outputs of modules."""

_STATISTICS: Final = ("size", "min", "max", "mean", "std", "l2")
_MATRIX: Final = 2
_WEIGHT: Final = ".weight"
_FLAT: Final = "_flat_param"
_IN_ONE: Final = (
    "FSDP keeps all weights in one flat parameter, so that no layer has its own: pass "
    "use_orig_params=True, or use fully_shard"
)
_NONE: Final = (
    "no linear layer was saved with its input, output and whole weight; if weights are divided "
    "among ranks, save all parts (include_workers=all)"
)


class Place(NamedTuple):
    """Which input or output of which module a signal is."""

    module: str
    kind: str
    number: int


class Signals:
    """Inputs and outputs of modules at a step, in the order in which they were saved.

    Args:
        step: The step.

    Attributes:
        rows: The inputs and outputs [S].
        places: What each of them is [S].
    """

    def __init__(self, step: StepView) -> None:
        self.rows = step.tensors(regex=(KNOWN_COLLECTIONS[MODULE_IO.name],))
        self.places = [_place(name) for name in self.rows.names]
        self._row_of = {
            (*place, worker): at
            for at, (place, worker) in enumerate(zip(self.places, self.rows.workers, strict=True))
        }

    @cached_property
    def prints(self) -> list[int]:
        """A number for each signal [S]; two signals with the same number are the same tensor."""
        columns = [self.rows.column(name) for name in _STATISTICS]
        return [int(number) for number in fingerprints(columns)]

    def at(self, module: str, kind: str, worker: str, number: int = 0) -> int | None:
        """Return the row of an input or output of a module; None if it was not saved.

        Args:
            module: Name of the module.
            kind: `input` or `output`.
            worker: The worker.
            number: Number of the input or output; a second call of a module has number 1.
        """
        return self._row_of.get((module, kind, number, worker))


class Layer(NamedTuple):
    """A module that has parameters and was called.

    Attributes:
        module: Name of the module, as in `{module}_output_0`.
        worker: The worker.
        parameters: Names of its parameters.
        begin: Row of its first output [S].
    """

    module: str
    worker: str
    parameters: tuple[str, ...]
    begin: int


class LinearLayer(NamedTuple):
    """A linear layer or a convolution.

    Attributes:
        module: Name of the module.
        worker: The worker.
        weight: Name of its weight.
        outputs: Number of its outputs, or channels.
        inputs: Number of its inputs, or channels.
        into: Row of its input [S].
        out: Row of its output [S].
    """

    module: str
    worker: str
    weight: str
    outputs: int
    inputs: int
    into: int
    out: int


class Flow(NamedTuple):
    """How far gradients get through the layers of a worker, by the order of calls.

    Attributes:
        first: Parameters of the layer that is called first.
        upstream: Parameters of layers without gradients that are called before one with gradients.
        tail: Parameters of the layers that are called after the last one with gradients.
        is_mixed: Whether something that has a gradient comes before a layer that has none.
    """

    first: frozenset[str]
    upstream: frozenset[str]
    tail: frozenset[str]
    is_mixed: bool


class Layers:
    """The layers of a model that were called at a step.

    Args:
        step: The step.
    """

    def __init__(self, step: StepView) -> None:
        self._step = step
        self._signals = step.fact(Signals)
        gradients = step.tensors(collections=("gradients",))
        parameters = step.tensors(collections=("weights", "biases"))
        named = set(zip(parameters.names, parameters.workers, strict=True))
        named |= set(zip(parameters_of(step, gradients), gradients.workers, strict=True))
        self._owners: dict[tuple[str, str], set[tuple[str, str]]] = {}
        for name, worker in named:
            owner = name.rpartition(".")[0]
            found = (
                m for m in _module_names(owner) if self._signals.at(m, "output", worker) is not None
            )
            module = next(found, None)  # the longest name: a module `x` may exist beside `my_x`
            if module is not None:
                self._owners.setdefault((module, worker), set()).add((owner, name))

    def has_parameters(self, module: str, worker: str) -> bool:
        """Return whether a module has parameters of its own.

        Args:
            module: Name of the module.
            worker: The worker.
        """
        return (module, worker) in self._owners

    def in_order(self, worker: str) -> list[Layer]:
        """Return the layers of a worker in the order of calls.

        Modules of two models that have the same name are left out: the order of their calls is not
        known.

        Args:
            worker: The worker.
        """
        return self._ordered.get(worker, [])

    @cached_property
    def _ordered(self) -> dict[str, list[Layer]]:
        found = []
        for (module, worker), owned in self._owners.items():
            begin = self._signals.at(module, "output", worker)
            if begin is not None and len({owner for owner, _ in owned}) == 1:
                found.append(Layer(module, worker, tuple(sorted(n for _, n in owned)), begin))
        ordered: dict[str, list[Layer]] = {}
        for layer in sorted(found, key=lambda layer: layer.begin):
            ordered.setdefault(layer.worker, []).append(layer)
        return ordered

    def flow(self, worker: str, learning: Collection[str]) -> Flow:
        """Return how far gradients get.

        Args:
            worker: The worker.
            learning: Names of the parameters that have a gradient other than zero.
        """
        layers = self.in_order(worker)
        learns = [any(name in learning for name in layer.parameters) for layer in layers]
        positions = [at for at, does in enumerate(learns) if does] or [len(layers)]
        before_last = zip(layers[: positions[-1]], learns, strict=False)
        called = {name for layer in layers for name in layer.parameters}
        is_outside = bool(layers) and not called.issuperset(learning)
        return Flow(
            first=_names(layers[:1]),
            upstream=_names([layer for layer, does in before_last if not does]),
            tail=_names(layers[positions[-1] + 1 :]),
            is_mixed=is_outside or not all(learns[positions[0] :]),
        )

    @cached_property
    def linear(self) -> list[LinearLayer]:
        """Linear layers and convolutions, by the shapes of weight, input and output.

        The weight is a matrix [outputs, inputs], and the last dimensions of output and input have
        these sizes; or a kernel [outputs, inputs, ...], and the second dimensions have. So
        embeddings, normalisations and depthwise convolutions are not among them.
        """
        found = []
        for (module, worker), owned in self._owners.items():
            for _, name in sorted(owned):
                layer = self._as_linear(module, worker, name, self._shapes.get((name, worker)))
                if layer is not None:
                    found.append(layer)
        return sorted(found, key=lambda layer: layer.out)

    def _as_linear(
        self, module: str, worker: str, name: str, weight: tuple[int, ...] | None
    ) -> LinearLayer | None:
        into, out = (self._signals.at(module, kind, worker) for kind in ("input", "output"))
        if into is None or out is None or not weight or len(weight) < _MATRIX:
            return None
        taken, given = self._signals.rows.shapes[into] or (), self._signals.rows.shapes[out] or ()
        outputs, inputs, *kernel = weight
        axis = 1 if kernel else -1
        is_long_enough = min(len(taken), len(given)) >= _MATRIX + bool(kernel)
        fits = is_long_enough and (given[axis], taken[axis]) == (outputs, inputs)
        if not fits or not name.endswith(_WEIGHT):
            return None
        return LinearLayer(module, worker, name, outputs, inputs, into, out)

    def is_normalisation(self, module: str, worker: str) -> bool:
        """Return whether a module has two vectors as parameters, a weight and a bias.

        Args:
            module: Name of the module.
            worker: The worker.
        """
        owned = self._owners.get((module, worker), set())
        shapes = [self._shapes.get((name, worker)) for _, name in owned]
        return len(shapes) == _MATRIX and all(len(shape or ()) == 1 for shape in shapes)

    @cached_property
    def _shapes(self) -> dict[tuple[str, str], tuple[int, ...] | None]:
        """Shapes of the parameters by name and worker."""
        rows = self._step.tensors(collections=("weights", "biases"))
        triples = zip(rows.names, rows.workers, rows.shapes, strict=True)
        return {(name, worker): shape for name, worker, shape in triples}

    @property
    def why_none_is_linear(self) -> str:
        """What is missing where no layer is linear."""
        names = self._step.tensors(collections=("gradients",)).names
        return _IN_ONE if any(_FLAT in name for name in names) else _NONE


def _place(name: str) -> Place:
    parts = _SIGNAL.match(name)
    return (
        Place(parts["module"], parts["kind"], int(parts["number"])) if parts else Place(name, "", 0)
    )


def _module_names(owner: str) -> Iterator[str]:
    """Yield what may be the module's name in `{model}_{module}`: both may have a `_`."""
    return (owner[at + 1 :] for at, letter in enumerate(owner) if letter == "_")


def _names(layers: Collection[Layer]) -> frozenset[str]:
    return frozenset(name for layer in layers for name in layer.parameters)
