"""MissingActivation: linear layers one behind the other with nothing in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

import numpy as np

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.evaluation.outcome import IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.evaluation.rule import AtLeast, Memory, Rule, Unit
from rule_runtime.evaluation.selection import evidence, is_training
from rule_runtime.numerics.row_memory import fingerprints

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["MissingActivation"]

_COLUMNS: Final = ("size", "min", "max", "mean", "std", "l2")
_CLOSE: Final = 1e-6
_MATRIX: Final = 2
_REMEDY: Final = (
    "Put an activation (ReLU, GELU, tanh) between the two layers, or make one layer of them."
)


class MissingActivation(Rule):
    """Finds a linear layer whose output goes into another linear layer as it is.

    What it detects:
        Two linear layers with nothing between them, of which the inner width is no bottleneck, so
        that a single linear layer could do the same.

    Why it matters:
        Without activations a deep network is a linear model, and learns no more than that.

    How it decides:
        A layer is linear if its weight is a matrix [outputs, inputs], and the last dimensions of
        its output and input are of these sizes; or a kernel [outputs, inputs, ...], and the second
        dimensions are. So embeddings, normalisations and depthwise convolutions are not. Its output
        goes into another one if size, minimum, maximum, mean, standard deviation and l2 norm are
        equal (layers that change nothing, such as Identity or Flatten, may lie between). An output
        that goes into several linear layers, as into those for queries, keys and values, or that is
        added to the output of another module before it goes on, as around a residual block, is
        shared by them: no two layers could be made one. It fires if the inner width is at least the
        smaller one of the outer widths, at `patience` saved training steps in a row. A narrow inner
        width, as in an autoencoder or a low-rank layer, is on purpose.

    Parameters:
        patience: Saved steps in a row.

    What to try:
        An activation between the layers.

    Known false alarms:
        Two linear layers on purpose, as in experiments with deep linear networks; an output that is
        used elsewhere by functions that the hook does not see.

    Source:
        Stepwatch; UMLAUT (2021) and NeuraLint (2021) look for the same in the program.
    """

    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 3

    collections = (
        CollectionConfig(
            "module_io", {"include_regex": "_(input|output)_[0-9]+$", "save_interval": "10"}
        ),
        CollectionConfig("weights", {"save_interval": "10"}),
    )

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Follow the outputs of linear layers.

        Args:
            step: What was saved at the step.
            memory: `streak`: for how many saved steps there was such a pair.
        """
        if not is_training(step):
            return NotEvaluated(f"steps of mode {step.mode.name} are not judged")
        rows = step.tensors(regex=(r"_(input|output)_0$",))
        layers = dict(_linear_layers(step, rows))
        if not layers:
            return NotEvaluated("no linear layer was saved with its input and output")
        pairs = _pairs(rows, layers)
        memory["streak"] = min(memory.get("streak", 0) + 1, self.patience) if pairs else 0
        if memory["streak"] < self.patience:
            return Passed()
        _, _, at, told = min(pairs)
        return IssueFound(
            evidence(
                step,
                rows,
                at,
                measure="layers_without_activation",
                value=float(len(pairs)),
                threshold=0.0,
                told=told,
                remedy=_REMEDY,
            )
        )


_Layer = tuple[str, str]
"""Name of a module, and the worker."""


def _linear_layers(step: StepView, rows: TensorRows) -> Iterator[tuple[_Layer, tuple[int, int]]]:
    """Yield modules with a weight matrix or kernel, and the numbers of their outputs and inputs."""
    weights = step.tensors(collections=("weights",))
    kernels: dict[tuple[str, str], tuple[int, ...]] = {
        (name, worker): shape
        for name, worker, shape in zip(weights.names, weights.workers, weights.shapes, strict=True)
        if shape is not None and len(shape) >= _MATRIX and name.endswith(".weight")
    }
    shape_of = dict(zip(zip(rows.names, rows.workers, strict=True), rows.shapes, strict=True))
    for (name, worker), shape in shape_of.items():
        module, _, kind = name.rpartition("_output_")
        taken = shape_of.get((f"{module}_input_0", worker))
        if kind != "0" or not module or not shape or not taken:
            continue
        for (weight, of), (outputs, inputs, *kernel) in kernels.items():
            axis = 1 if kernel else -1
            is_own = weight.endswith(f"_{module}.weight") and of == worker
            fits = min(len(shape), len(taken)) >= _MATRIX + bool(kernel)
            if is_own and fits and (shape[axis], taken[axis]) == (outputs, inputs):
                yield (module, worker), (outputs, inputs)


def _pairs(
    rows: TensorRows, layers: dict[_Layer, tuple[int, int]]
) -> list[tuple[str, str, int, str]]:
    """Return (name, worker, row of the output, what is told) of outputs that go into a layer."""
    prints = fingerprints([rows.column(name) for name in _COLUMNS]).tolist()
    std = rows.column("std")
    row_of = {pair: at for at, pair in enumerate(zip(rows.names, rows.workers, strict=True))}
    outputs = {}
    for (module, worker), widths in layers.items():
        at = row_of[f"{module}_output_0", worker]
        if std[at] > 0:
            outputs[prints[at], worker] = (module, at, widths)
    num_takers = Counter(
        (prints[row_of[name, worker]], worker)
        for name, worker in ((f"{module}_input_0", worker) for module, worker in layers)
        if (name, worker) in row_of
    )
    found = []
    for (module, worker), (width, _) in layers.items():
        into = row_of.get((f"{module}_input_0", worker))
        source = None if into is None else outputs.get((prints[into], worker))
        if source is None or source[0] == module:
            continue
        before, at, (inner, outer) = source
        is_shared = num_takers[prints[at], worker] > 1 or _is_added(rows, at)
        if inner >= min(outer, width) and not is_shared:
            told = f"goes into {module} as it is: {before} and {module} are one linear layer"
            found.append((rows.names[at], worker, at, told))
    return found


def _is_added(rows: TensorRows, at: int) -> bool:
    """Tell whether the sum of an output and another one is the input of a module, by its mean."""
    mean, std, size = (rows.column(name) for name in ("mean", "std", "size"))
    own = (size == size[at]) & np.array([of == rows.workers[at] for of in rows.workers], dtype=bool)
    is_input = np.array(["_input_" in name for name in rows.names], dtype=bool)
    others = own & ~is_input
    others[at] = False
    sums = mean[at] + mean[others]
    differences = np.abs(mean[own & is_input][:, None] - sums)
    return bool((differences < _CLOSE * std[at]).any())
