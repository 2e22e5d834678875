"""Weights and gradients by parameter: what arrives at which parameter, and how a model begins.

Shape legend: G = gradients, R = parameters, one for each (tensor, worker).
"""

from __future__ import annotations

import math
import re
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import Missing
from rule_runtime.facts.gradient_names import UNTOLD, parameters_of
from rule_runtime.facts.layers import MODULE_IO, Layers, Signals
from rule_runtime.facts.missing import missing_gradients
from rule_runtime.numerics.row_memory import fingerprints

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = [
    "FIRST_WEIGHTS",
    "FirstWeight",
    "Gradients",
    "first_weights",
    "is_fresh",
    "weight_prints",
]

FIRST_WEIGHTS: Final = (
    MODULE_IO,
    CollectionConfig("weights", {"save_interval": "10"}),
    CollectionConfig("gradients", {"save_interval": "10"}),
)
"""What the hook saves for a rule that looks at the first weights."""

_PRINTED: Final = ("min", "max", "mean", "l1", "l2")
_ROUNDING: Final = 1e-3
"""Largest gradient of a bias, relative to its weight's, that is rounding of a sum of zero."""
_WEIGHTS_OF: Final = {
    ".bias": (".weight",),
    "_bias": ("_weight",),
    "/bias:0": ("/kernel:0", "/pointwise_kernel:0"),
    "/beta:0": ("/gamma:0",),
}
"""The name of a weight next to its bias, in PyTorch, MXNet and Keras."""
_ENOUGH: Final = 256
"""Elements that a tensor needs before its extremes identify a uniform distribution."""
_AT_ENDS: Final = 20.0
"""Mean number of elements between an extreme and the end of the distribution that is too many."""
_SCATTER: Final = 4 * math.sqrt(0.2)
"""Four standard errors of the standard deviation of a uniform distribution, times sqrt(n)."""
_SLACK: Final = 1 + 1e-6
_PACKED: Final = re.compile(r"\.(weight_[ih]h_l\d+(_reverse)?|in_proj_weight)$")
_RECURRENT: Final = ".weight_hh_l"


class Gradients:
    """The gradients of a step, and the parameters that they belong to.

    Args:
        step: The step.

    Attributes:
        rows: The gradients [G].
        owners: Name of the parameter of each; empty where its own name does not tell it [G].
        sizes: Mean absolute value of each; NaN where it is unknown or not finite [G].
    """

    def __init__(self, step: StepView) -> None:
        self.rows = step.tensors(collections=("gradients",))
        self.owners = parameters_of(step, self.rows)
        self.sizes = self.rows.column("abs_mean")

    def require(self) -> None:
        """Raise `Missing` unless some gradient is not zero and belongs to a known parameter."""
        if missing := missing_gradients(self.rows, ("abs_mean",)):
            raise missing
        if not (self.sizes > 0).any():
            raise Missing("all gradients that are known are zero")
        if not any(self.owners):
            raise Missing(UNTOLD)

    def of(self, parameters: TensorRows) -> npt.NDArray[np.float64]:
        """Return the mean absolute gradient of parameters, the largest where there are several [R].

        It is NaN where a parameter has no gradient, and infinite where it is unknown or not finite.

        Args:
            parameters: Weights or biases [R].
        """
        sizes = np.where(np.isnan(self.sizes), np.inf, self.sizes).tolist()
        found: dict[tuple[str, str], float] = {}
        for *pair, size in zip(self.owners, self.rows.workers, sizes, strict=True):
            key = (pair[0], pair[1])
            found[key] = max(found.get(key, 0.0), size)
        pairs = zip(parameters.names, parameters.workers, strict=True)
        return np.array([found.get(pair, np.nan) for pair in pairs], dtype=np.float64)

    def learning(self, worker: str) -> frozenset[str]:
        """Return the parameters whose gradient is not zero.

        Args:
            worker: The worker.
        """
        named = zip(self.owners, self.rows.workers, self.sizes != 0, strict=True)
        return frozenset(name for name, of, is_any in named if of == worker and is_any and name)

    @cached_property
    def is_cancelled(self) -> npt.NDArray[np.bool_]:
        """Which gradients are of biases and cancel out by construction [G].

        A normalisation removes the mean of its input, and a softmax ignores any shift. The
        gradient of a bias right before is zero except for rounding, while that of the weight of
        the same layer is not. So a bias counts as one if its gradient is less than a thousandth of
        its weight's.
        """
        named = zip(self.owners, self.rows.names, strict=True)
        called = [owner or name for owner, name in named]
        where = {pair: at for at, pair in enumerate(zip(called, self.rows.workers, strict=True))}
        found = np.zeros(len(self.rows), dtype=np.bool_)
        for (name, worker), at in where.items():
            for weight in _weights_of(name):
                of_weight = where.get((weight, worker))
                if of_weight is not None and self.sizes[of_weight] > 0:
                    found[at] |= self.sizes[at] <= _ROUNDING * self.sizes[of_weight]
        return found


def _weights_of(name: str) -> list[str]:
    """Return what the weight next to a bias may be called; nothing if this is no bias."""
    return [
        name.removesuffix(bias) + weight
        for bias, weights in _WEIGHTS_OF.items()
        if name.endswith(bias)
        for weight in weights
    ]


def weight_prints(parameters: TensorRows) -> npt.NDArray[np.uint32]:
    """Return a number for each parameter that differs if its values do, by its statistics [R].

    Args:
        parameters: Weights or biases [R].
    """
    return fingerprints([parameters.column(name) for name in _PRINTED])


def is_fresh(weights: TensorRows) -> npt.NDArray[np.bool_]:
    """Tell which weights look as PyTorch or Keras initialise linear layers and convolutions [R].

    Both draw from a uniform distribution between -a and a: a = 1 / sqrt(inputs) in PyTorch (He and
    others, 2015), sqrt(6 / (inputs + outputs)) in Keras (Glorot and Bengio, 2010). The extremes of
    n elements come within 20 / n of the ends, and the standard deviation is a / sqrt(3). Trained
    weights do not look so.

    Args:
        weights: The weights [R].
    """
    low, high, std = (weights.column(name) for name in ("min", "max", "std"))
    found = np.zeros(len(weights), np.bool_)
    for at, shape in enumerate(weights.shapes):
        size = math.prod(shape or ())
        if not shape or len(shape) == 1 or size < _ENOUGH:
            continue
        kernel = math.prod(shape[:-2])
        ends = (
            1 / math.sqrt(math.prod(shape[1:])),
            math.sqrt(6 / (kernel * (shape[-2] + shape[-1]))),
        )
        for end in ends:
            nearest, farthest = sorted((-low[at], high[at]))
            reaches = (1 - _AT_ENDS / size) * end < nearest and farthest <= end * _SLACK
            scatter = abs(std[at] * math.sqrt(3) / end - 1)
            found[at] |= reaches and scatter < _SCATTER / math.sqrt(size)
    return found


class FirstWeight(NamedTuple):
    """A weight that is shared by many units, before the first step of training.

    Attributes:
        at: Its row in the collection `weights` [R].
        worker: The worker.
        gain: Root mean square times the root of the smaller one of its numbers of inputs and
            outputs; 0.5 to 2 in usual initialisations.
        growth: Root mean square of the layer's output divided by that of its input; NaN if unknown.
        outputs: Number of its outputs.
        inputs: Number of its inputs.
        is_constant: Whether all elements are equal.
        is_zero: Whether they are all 0.
        is_recurrent: Whether it takes the state of a recurrent layer to the next one.
    """

    at: int
    worker: str
    gain: float
    growth: float
    outputs: int
    inputs: int
    is_constant: bool
    is_zero: bool
    is_recurrent: bool


def first_weights(step: StepView) -> list[FirstWeight]:
    """Return the weights of linear, recurrent and attention layers that have a gradient.

    Args:
        step: The first step of its mode.

    Raises:
        Missing: If there are none.
    """
    weights = step.tensors(collections=("weights",))
    has_gradient = ~np.isnan(step.fact(Gradients).of(weights))
    growths = _growths(step)
    low, high, rms = weights.column("min"), weights.column("max"), _rms(weights)
    found = []
    for at, (name, worker) in enumerate(zip(weights.names, weights.workers, strict=True)):
        shape = weights.shapes[at]
        is_layer = (name, worker) in growths or _PACKED.search(name)
        if not (is_layer and shape and has_gradient[at]):
            continue
        outputs, inputs, *kernel = shape
        fan = min(outputs, inputs) * math.prod(kernel)
        is_constant = bool(low[at] == high[at])
        found.append(
            FirstWeight(
                at,
                worker,
                float(rms[at]) * math.sqrt(fan),
                growths.get((name, worker), math.nan),
                outputs,
                inputs,
                is_constant,
                is_constant and bool(low[at] == 0),
                _RECURRENT in name,
            )
        )
    if not found:
        raise Missing(_why_none(step, weights))
    return found


def _growths(step: StepView) -> dict[tuple[str, str], float]:
    """Return how many times larger than its input a linear layer's output is, by its weight."""
    rms = _rms(step.fact(Signals).rows)
    return {
        (layer.weight, layer.worker): float(rms[layer.out] / rms[layer.into])
        if rms[layer.into] > 0
        else math.nan
        for layer in step.fact(Layers).linear
    }


def _rms(rows: TensorRows) -> npt.NDArray[np.float64]:
    """Return the root mean square of each row."""
    with np.errstate(over="ignore"):
        return np.sqrt(rows.column("mean") ** 2 + rows.column("std") ** 2)


def _why_none(step: StepView, weights: TensorRows) -> str:
    """Return what a step lacks without which no first weight is judged."""
    for name in ("weights", "gradients"):
        if not len(step.tensors(collections=(name,))):
            return f"no tensor of the collection {name} was saved at step 0"
    if all(shape is None for shape in weights.shapes):
        return "the shapes of the weights are not known: write the run with the hook of Stepwatch"
    if not step.fact(Layers).linear:
        return f"{step.fact(Layers).why_none_is_linear}, at step 0"
    return "no weight of a linear, recurrent or attention layer has a gradient at step 0"
