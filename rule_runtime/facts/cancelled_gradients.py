"""Gradients of biases that cancel out by construction, which says nothing against the training.

A normalisation layer takes the mean out of what comes in, and a softmax is the same for any shift
of its input. A bias in front of it changes nothing then: the gradients of its outputs add up to
zero, but for rounding. The same gradients, weighted with the inputs, are the gradient of the weight
of the same layer, and that does not vanish. So the two together tell this case from a gradient that
does not arrive.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.facts.gradient_names import parameters_of

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["cancelled_biases"]

_WEIGHTS_OF: Final = {
    ".bias": (".weight",),
    "_bias": ("_weight",),
    "/bias:0": ("/kernel:0", "/pointwise_kernel:0"),
    "/beta:0": ("/gamma:0",),
}
"""How weights are called beside their biases: in torch, in MXNet, and in Keras."""
_ROUNDING: Final = 1e-3
"""Largest size of a sum that cancelled out, relative to the gradient of the weight."""


def cancelled_biases(
    step: StepView, rows: TensorRows, sizes: npt.NDArray[np.float64], *, least: float
) -> npt.NDArray[np.bool_]:
    """Tell which rows are gradients of biases that cancel out by construction [R].

    A row is one if it is called `<layer>.bias` (or as MXNet and Keras call it), the gradient of
    `<layer>.weight` of the same worker is not smaller than `least`, the bias fits to that weight,
    as far as shapes are known, and its gradient is less than a thousandth of the weight's. It may
    also be what a normalisation adds, beside what it multiplies with: if a convolution of single
    pixels and a second normalisation follow, as in MobileNet, this cancels out, too.

    Args:
        step: The step.
        rows: Rows with all its gradients.
        sizes: Mean of the magnitudes of each row [R].
        least: Size below which a gradient has vanished.
    """
    named = zip(parameters_of(step, rows), rows.names, strict=True)
    called = [parameter or name for parameter, name in named]
    where = {pair: at for at, pair in enumerate(zip(called, rows.workers, strict=True))}
    shapes = rows.shapes
    cancelled = np.zeros(len(rows), dtype=np.bool_)
    for (name, worker), at in where.items():
        for called_so in _weights_of(name):
            weight = where.get((called_so, worker))
            if weight is not None and _fits(shapes[at], shapes[weight]):
                is_small = sizes[at] <= _ROUNDING * sizes[weight]
                cancelled[at] |= sizes[weight] >= least and is_small
    return cancelled


def _weights_of(name: str) -> Iterator[str]:
    """Yield what the weight beside a bias may be called; nothing if this is no bias."""
    for bias, weights in _WEIGHTS_OF.items():
        if name.endswith(bias):
            yield from (name.removesuffix(bias) + weight for weight in weights)


def _fits(bias: tuple[int, ...] | None, weight: tuple[int, ...] | None) -> bool:
    """Return whether a layer with such a weight has such a bias: one number for each output."""
    if bias is None or weight is None:
        return True
    if bias == weight:  # of a normalisation
        return len(bias) == 1
    if 1 < len(bias) < len(weight):  # Keras' attention has outputs by head
        return bias == weight[-len(bias) :]
    # A transposed convolution has its outputs on the second axis, one of Keras on the last.
    return len(bias) == 1 and len(weight) > 1 and bias[0] in (*weight[:2], weight[-1])
