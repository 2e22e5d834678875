"""Weights and gradients by parameter.

Shape legend: G = gradients, R = parameters, one for each (tensor, worker).
"""

from __future__ import annotations

import math
from functools import cached_property, lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from rule_runtime.engine.outcome import Missing
from rule_runtime.facts.gradient_names import parameters_of
from rule_runtime.facts.missing import missing_gradients
from rule_runtime.numerics.row_memory import fingerprints
from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["ENOUGH", "Gradients", "is_as_initialised", "is_normal", "weight_fingerprints"]

_COMPARED: Final = ("min", "max", "mean", "l1", "l2")
_ROUNDING: Final = 1e-3
"""Largest gradient of a bias, relative to its weight's, that counts as rounding of zero."""
_BIASES: Final = (
    (".bias", ".weight"),
    ("_bias", "_weight"),
    ("/bias:0", "/kernel:0"),
    ("/bias:0", "/pointwise_kernel:0"),
    ("/beta:0", "/gamma:0"),
)
"""Suffixes of the names of a bias and its weight, in PyTorch, MXNet and Keras."""
ENOUGH: Final = 512
"""Minimum elements of a tensor whose statistics identify a uniform distribution."""
_CLOSE: Final = 0.05
"""Relative error by chance of extremes and standard deviation with that many elements."""
_FIXED: Final = (1.0, 0.02)
"""Standard deviations of normal distributions that do not depend on the shape: embeddings, GPT."""
_SIGMAS: Final = 3.0
"""Standard errors by which the statistics of a sample may differ."""
_MEAN_OF_NORMAL: Final = math.sqrt(2 / math.pi)
"""Mean absolute value of the standard normal distribution."""


class Gradients:
    """The gradients of a step and their parameters.

    Attributes:
        rows: The gradients [G].
        owners: Name of the parameter of each; empty if its name does not show it [G].
        sizes: Mean absolute value of each; NaN if unknown or not finite [G].
    """

    def __init__(self, step: StepView) -> None:
        self.rows = step.tensors(collections=("gradients",))
        self.owners = parameters_of(step, self.rows)
        self.sizes = self.rows.column("abs_mean")

    def require(self) -> None:
        """Raise `Missing` unless a non-zero gradient belongs to a known parameter."""
        if missing := missing_gradients(self.rows, ("abs_mean",)):
            raise missing
        if not (self.sizes > 0).any():
            raise Missing("all saved gradients are zero", "see the rule VanishingGradient")
        if not any(self.owners):
            how = "name them as the hook does, such as gradient/fc.weight"
            raise Missing("no gradient is named after its parameter", how)

    def of(self, parameters: TensorRows) -> npt.NDArray[np.float64]:
        """Return the mean absolute gradient of parameters; the largest of several gradients [R].

        It is NaN without a gradient, and infinite if it is unknown or not finite.
        """
        sizes = np.where(np.isnan(self.sizes), np.inf, self.sizes).tolist()
        found: dict[tuple[str, str], float] = {}
        for *pair, size in zip(self.owners, self.rows.workers, sizes, strict=True):
            key = (pair[0], pair[1])
            found[key] = max(found.get(key, 0.0), size)
        return np.array([found.get(pair, np.nan) for pair in parameters.pairs], dtype=np.float64)

    def learning(self, worker: str) -> frozenset[str]:
        """Return the parameters whose gradient is not zero."""
        named = zip(self.owners, self.rows.workers, self.sizes != 0, strict=True)
        return frozenset(name for name, of, is_any in named if of == worker and is_any and name)

    @cached_property
    def is_cancelled(self) -> npt.NDArray[np.bool_]:
        """Which gradients belong to biases and cancel out by construction [G].

        A normalisation removes the mean of its input, and a softmax ignores any shift. So the
        gradient of a bias right before it is zero except for rounding, but that of the layer's
        weight is not.
        """
        biases, weights = _with_weights(self.owners, self.rows.names, self.rows.workers)
        of_weight = self.sizes[weights]
        is_rounding = (of_weight > 0) & (self.sizes[biases] <= _ROUNDING * of_weight)
        found = np.zeros(len(self.rows), dtype=np.bool_)
        found[biases[is_rounding]] = True
        return found


@lru_cache(maxsize=32)
def _with_weights(
    owners: tuple[str, ...], names: tuple[str, ...], workers: tuple[str, ...]
) -> npt.NDArray[np.intp]:
    """Return the gradients of biases, and those of the weights of the same layers [2, pairs].

    The result is cached, because names hardly ever change in a run.
    """
    named = zip(owners, names, workers, strict=True)
    where = {(owner or name, worker): at for at, (owner, name, worker) in enumerate(named)}
    pairs = [
        (at, where[of_weight])
        for (name, worker), at in where.items()
        for bias, weight in _BIASES
        if name.endswith(bias)
        and (of_weight := (name.removesuffix(bias) + weight, worker)) in where
    ]
    found: npt.NDArray[np.intp] = np.array(pairs, dtype=np.intp).reshape(-1, 2).T
    return found


def weight_fingerprints(parameters: TensorRows) -> npt.NDArray[np.uint32]:
    """Return a fingerprint of each parameter's values from its statistics [R]."""
    return fingerprints([parameters.column(name) for name in _COMPARED])


def is_as_initialised(weights: TensorRows) -> npt.NDArray[np.bool_]:
    """Return which weights look like PyTorch's or Keras's initial linear or conv weights [R].

    Both draw from a uniform distribution between -a and a: a = 1 / sqrt(inputs) in PyTorch (He and
    others, 2015), sqrt(6 / (inputs + outputs)) in Keras (Glorot and Bengio, 2010). So the extremes
    are close to the bounds, and the standard deviation is a / sqrt(3). Trained weights differ.
    """
    low, high, std = (weights.column(name) for name in ("min", "max", "std"))
    found = np.zeros(len(weights), np.bool_)
    for at, shape in enumerate(weights.shapes):
        if not shape or len(shape) == 1 or math.prod(shape) < ENOUGH:
            continue
        units = math.prod(shape[:-2]) * (shape[-2] + shape[-1])
        for end in (1 / math.sqrt(math.prod(shape[1:])), math.sqrt(6 / units)):
            nearest, farthest = sorted((-low[at] / end, high[at] / end))
            is_uniform = abs(std[at] * math.sqrt(3) / end - 1) < _CLOSE
            # float32 may round the bound itself up.
            found[at] |= is_uniform and nearest > 1 - _CLOSE and farthest < 1 + 1e-6
    return found


def is_normal(weights: TensorRows) -> npt.NDArray[np.bool_]:
    """Return which weights look drawn from the normal distribution of an initialiser [R].

    Its standard deviation depends on the inputs and outputs (He, Glorot and LeCun), or is fixed.
    Weights that moved little look the same, so other signs must show that nothing was trained.
    """
    mean, std, absolute = (weights.column(name) for name in ("mean", "std", "abs_mean"))
    found = np.zeros(len(weights), np.bool_)
    for at, shape in enumerate(weights.shapes):
        if not shape or len(shape) == 1 or math.prod(shape) < ENOUGH or not std[at] > 0:
            continue
        error = _SIGMAS / math.sqrt(math.prod(shape))
        is_shaped = abs(absolute[at] / std[at] - _MEAN_OF_NORMAL) < error
        kernel = math.prod(shape[2:])
        ends = (shape[0] * kernel, shape[1] * kernel, sum(shape[:2]) * kernel / 2)
        likely = (*_FIXED, *(math.sqrt(gain / units) for units in ends for gain in (1, 2)))
        is_known = any(abs(std[at] / one - 1) < error for one in likely)
        found[at] = is_shaped and is_known and abs(mean[at]) < error * std[at]
    return found
