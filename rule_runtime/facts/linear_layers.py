"""Which modules of a model are linear layers, and where their outputs go.

A layer is linear if its weight is a matrix [outputs, inputs], and the last dimensions of its output
and input are of these sizes; or a kernel [outputs, inputs, ...], and the second dimensions are. So
embeddings, normalisations and depthwise convolutions are not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from rule_runtime.configuration.collection_config import CollectionConfig

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = [
    "MODULE_IO",
    "LinearLayer",
    "LinearSignals",
    "Signal",
    "linear_layers",
    "may_be",
    "why_no_layer",
]

MODULE_IO: Final = CollectionConfig("module_io", {"save_interval": "10"})
"""What the hook is to save for a rule that looks at the inputs and outputs of modules."""

_MATRIX: Final = 2
_FLAT: Final = "_flat_param"
_IN_ONE: Final = (
    "FSDP keeps all weights in one flat parameter, so that no layer has its own: pass "
    "use_orig_params=True, or use fully_shard"
)
_DIVIDED: Final = (
    "the weights are divided among ranks, and a part does not tell the shape of its layer: save "
    "those of all ranks (include_workers=all)"
)
_WEIGHT: Final = ".weight"
_IMAGE: Final = 3
_GROWS: Final = 1.001
_SAME_RATIO: Final = 0.05
_SELU: Final = 1.0507
_CLOSE: Final = 1e-3
_MAX_BETWEEN: Final = 8


class LinearLayer(NamedTuple):
    """A linear layer.

    Attributes:
        module: Name of the module, as in `{module}_output_0`.
        worker: The worker.
        weight: Name of its weight.
        outputs: Number of its outputs, or channels.
        inputs: Number of its inputs, or channels.
    """

    module: str
    worker: str
    weight: str
    outputs: int
    inputs: int


def linear_layers(step: StepView, rows: TensorRows) -> Iterator[LinearLayer]:
    """Yield the linear layers of a step.

    Args:
        step: The step, of which the collection `weights` is read.
        rows: Inputs and outputs of modules.
    """
    kernels = _kernels(step)
    shape_of = dict(zip(zip(rows.names, rows.workers, strict=True), rows.shapes, strict=True))
    for (name, worker), shape in shape_of.items():
        module, _, kind = name.rpartition("_output_")
        taken = shape_of.get((f"{module}_input_0", worker))
        if kind != "0" or not module or not shape or not taken:
            continue
        for weight, (outputs, inputs, *kernel) in kernels.get((module, worker), ()):
            axis = 1 if kernel else -1
            fits = min(len(shape), len(taken)) >= _MATRIX + bool(kernel)
            if fits and (shape[axis], taken[axis]) == (outputs, inputs):
                yield LinearLayer(module, worker, weight, outputs, inputs)


def why_no_layer(step: StepView, rows: TensorRows) -> str:
    """Return why no layer is known where weights are divided among ranks; empty where they are not.

    A part has another number of elements than any side of its layer's output has, unlike the weight
    of a normalisation, and fewer dimensions or rows than the layer's weight.

    Args:
        step: The step, of which weights and gradients are read.
        rows: Inputs and outputs of modules.
    """
    if any(_FLAT in name for name in step.tensors(collections=("gradients",)).names):
        return _IN_ONE
    shape_of = dict(zip(zip(rows.names, rows.workers, strict=True), rows.shapes, strict=True))
    weights = step.tensors(collections=("weights",))
    for name, worker, shape in zip(weights.names, weights.workers, weights.shapes, strict=True):
        for module in may_be(name.removesuffix(_WEIGHT)):
            taken, out = (shape_of.get((f"{module}_{s}_0", worker)) for s in ("input", "output"))
            if shape is None or not taken or not out or min(len(taken), len(out)) < _MATRIX:
                continue
            is_flat = len(shape) == 1 and shape[0] not in (*out, *taken)
            is_part = shape[1:] == taken[-1:] and 0 < shape[0] < out[-1]
            if is_flat or is_part:
                return _DIVIDED
    return ""


class Signal(NamedTuple):
    """The output of a linear layer, or what became of it on its way without an activation.

    Attributes:
        source: The layer.
        path: Rows of the layer's output, and of the outputs of the modules behind it.
        is_direct: Whether these modules change nothing but by dropout.
    """

    source: LinearLayer
    path: tuple[int, ...]
    is_direct: bool


class LinearSignals:
    """Where the outputs of linear layers go, through what is no activation.

    Args:
        step: The step.
        rows: Inputs and outputs of modules [R].
        layers: The linear layers.
        prints: A fingerprint of each row [R].
    """

    def __init__(
        self, step: StepView, rows: TensorRows, layers: Sequence[LinearLayer], prints: list[int]
    ) -> None:
        self._rows, self._prints = rows, prints
        self._row_of = {p: at for at, p in enumerate(zip(rows.names, rows.workers, strict=True))}
        self._stats = {name: rows.column(name) for name in ("min", "max", "std", "l2")}
        self._norms, self._with_weights = _owners(step)
        self._signals: dict[tuple[int, str], Signal] = {}
        self.num_between = 0
        for layer in layers:
            at = self._row_of[f"{layer.module}_output_0", layer.worker]
            if self._stats["std"][at] > 0:
                self._signals[prints[at], layer.worker] = Signal(layer, (at,), is_direct=True)
        self._follow({(f"{layer.module}_output_0", layer.worker) for layer in layers})

    def of(self, fingerprint: int, worker: str) -> Signal | None:
        """Return the signal with a fingerprint, None if it is none.

        Args:
            fingerprint: Of a row.
            worker: The worker.
        """
        return self._signals.get((fingerprint, worker))

    def _follow(self, known: set[tuple[str, str]]) -> None:
        for _ in range(_MAX_BETWEEN):
            found = 0
            for (name, worker), out in self._row_of.items():
                # Of a module that is called twice the second input and output are numbered 1.
                module, _, call = name.rpartition("_output_")
                into = self._row_of.get((f"{module}_input_{call}", worker))
                if into is None or (name, worker) in known:
                    continue
                signal = self._signals.get((self._prints[into], worker))
                if signal is None or self._prints[out] == self._prints[into]:
                    continue
                is_dropout = self._is_dropout(module, worker, into, out)
                is_between = is_dropout or self._is_between(module, worker, into, out)
                known.add((name, worker))
                if is_between and self._stats["std"][out] > 0:
                    is_direct = signal.is_direct and is_dropout
                    passed = Signal(signal.source, (*signal.path, out), is_direct)
                    self._signals.setdefault((self._prints[out], worker), passed)
                    self.num_between += not is_dropout
                    found += 1
            if not found:
                return

    def _is_between(self, module: str, worker: str, into: int, out: int) -> bool:
        """Return whether a module is a normalisation layer, or pools."""
        old, new = self._rows.shapes[into] or (), self._rows.shapes[out] or ()
        if (module, worker) in self._norms:
            return old == new
        is_pooled = len(old) >= _IMAGE and old[:2] == new[:2] and len(new) == len(old)
        is_smaller = is_pooled and math.prod(new) < math.prod(old)
        return is_smaller and (module, worker) not in self._with_weights

    def _is_dropout(self, module: str, worker: str, into: int, out: int) -> bool:
        """Return whether a module leaves some elements out and makes others larger by one factor.

        With a share p left out the extremes grow by 1 / (1 - p), and the squares as much. SELU is
        the only usual activation that lets numbers grow, those above 0 by a factor of its own.
        """
        if (module, worker) in self._with_weights or (
            self._rows.shapes[into] != self._rows.shapes[out]
        ):
            return False
        low, high, size = (self._stats[name] for name in ("min", "max", "l2"))
        if not (low[into] < 0 < high[into] and size[into] > 0):
            return False
        ratios = (low[out] / low[into], high[out] / high[into])
        factor, squares = max(ratios), (size[out] / size[into]) ** 2
        is_larger = min(ratios) >= 0 and factor > _GROWS and abs(factor - _SELU) > _CLOSE
        return bool(is_larger and abs(squares / factor - 1) < _SAME_RATIO)


def _owners(step: StepView) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """Return modules with a vector as weight and one as bias, and those with any weight.

    Each is (what may be the module's name, worker).
    """
    vectors: dict[str, set[tuple[str, str]]] = {"weights": set(), "biases": set()}
    owners = set()
    for collection in vectors:
        rows = step.tensors(collections=(collection,))
        for name, worker, shape in zip(rows.names, rows.workers, rows.shapes, strict=True):
            modules = {(module, worker) for module in may_be(name.rpartition(".")[0])}
            owners |= modules
            if shape is not None and len(shape) == 1:
                vectors[collection] |= modules
    return vectors["weights"] & vectors["biases"], owners


def may_be(owner: str) -> Iterator[str]:
    """Yield what may be the name of the module in `{model}_{module}`: both may have a `_`.

    Args:
        owner: What stands before `.weight` in the name of a weight.
    """
    return (owner[at + 1 :] for at, letter in enumerate(owner) if letter == "_")


def _kernels(step: StepView) -> dict[tuple[str, str], list[tuple[str, tuple[int, ...]]]]:
    """Return name and shape of matrices and kernels, by (each module they may be of, worker)."""
    weights = step.tensors(collections=("weights",))
    found: dict[tuple[str, str], list[tuple[str, tuple[int, ...]]]] = {}
    for name, worker, shape in zip(weights.names, weights.workers, weights.shapes, strict=True):
        if shape is None or len(shape) < _MATRIX or not name.endswith(_WEIGHT):
            continue
        for module in may_be(name.removesuffix(_WEIGHT)):
            found.setdefault((module, worker), []).append((name, shape))
    return found
