"""What is wrong with the weights that a training begins with: too large, or all the same.

Only weights that many units share are judged, and that are trained: those of linear layers and
convolutions (`linear_layers`), of recurrent layers, and the packed ones of attention.

Shape legend: R = rows, one for each (tensor, worker).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from itertools import permutations
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from hook_layer.known_collections import KNOWN_COLLECTIONS
from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import Evidence
from rule_runtime.engine.rule import Memory
from rule_runtime.facts.gradient_names import parameters_of
from rule_runtime.facts.linear_layers import MODULE_IO, linear_layers, why_no_layer
from rule_runtime.facts.selection import evidence

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["INITIAL_WEIGHTS", "as_initialised", "weights_too_large", "weights_too_much_alike"]

INITIAL_WEIGHTS: Final = (
    MODULE_IO,
    CollectionConfig("weights", {"save_interval": "10"}),
    CollectionConfig("gradients", {"save_interval": "10"}),
)
"""What the hook is to save for a rule that looks at initial weights."""

_PACKED: Final = re.compile(r"\.(weight_[ih]h_l\d+(_reverse)?|in_proj_weight)$")
_HALF: Final = 0.5
_ENOUGH: Final = 256
_AT_ENDS: Final = 20.0
_ROUNDING: Final = 1 + 1e-6
_SCATTER: Final = 4 * math.sqrt(0.2)
_AT_START: Final = "at_start"
_NO_START: Final = "only step 0 is judged, and it was not saved"
_JUDGED: Final = "only step 0 is judged, and it was"


def weights_too_large(
    step: StepView, memory: Memory, max_gain: float, remedy: str
) -> Evidence | str | None:
    """Return a finding if at least half of a worker's weights, or a recurrent one, are too large.

    One is too large if its gain is more than `max_gain`, and signals grow in it, as far as that is
    known, by more than half as much. So weights that the model scales down by itself are not.

    Args:
        step: The step; only step 0 of its mode is judged.
        memory: `at_start`, what must be said of step 0 at later ones.
        max_gain: The largest gain that is no issue.
        remedy: What to try first.

    Returns:
        The finding, None if all is well, or why it could not be judged.
    """
    weights = step.tensors(collections=("weights",))
    judged = _initial_weights(step, weights)
    if not judged:
        return _why_none(step, weights, memory)
    memory[_AT_START] = _JUDGED

    def is_large(weight: _InitialWeight) -> bool:
        return weight.gain > max_gain and not weight.growth <= _HALF * max_gain

    # Signals go through a recurrent weight at each position: one that is too large suffices.
    recurrent = [weight for weight in judged if weight.is_recurrent and is_large(weight)]
    large = _at_least_half(judged, is_large) or recurrent
    if not large:
        return None
    at, _, gain, growth, *_ = max(large, key=lambda weight: weight.gain)
    grows = "" if math.isnan(growth) else f", and what comes out is {growth:.3g} times what goes in"
    others = f"{len(large)} of {len(judged)} weights"
    return evidence(
        step,
        weights,
        at,
        measure="gain",
        value=gain,
        threshold=max_gain,
        message=(
            f"begins with a gain of {gain:.3g}, more than {max_gain:g}{grows}; as do {others}"
        ),
        remedy=remedy,
    )


def weights_too_much_alike(step: StepView, memory: Memory, remedy: str) -> Evidence | str | None:
    """Return a finding if a worker's weights make all units of their layers the same.

    That is so if at least half of those with several inputs and outputs are constant, and the model
    has more than one layer: a single one learns from any start. Some are zero on purpose, but not
    all, from one layer to the next.

    Args:
        step: The step; only step 0 of its mode is judged.
        memory: As for `weights_too_large`.
        remedy: What to try first.

    Returns:
        The finding, None if all is well, or why it could not be judged.
    """
    weights = step.tensors(collections=("weights",))
    judged = _initial_weights(step, weights)
    if not judged:
        return _why_none(step, weights, memory)
    memory[_AT_START] = _JUDGED
    units = [weight for weight in judged if weight.has_units]
    alike = _at_least_half(units, lambda weight: weight.is_constant and not weight.is_zero)
    alike = alike or _all_alike(units)
    if not alike or len({weight.at for weight in judged}) == 1:
        return None
    at = alike[0].at
    value = float(weights.column("min")[at])
    return evidence(
        step,
        weights,
        at,
        measure="initial_value",
        value=value,
        threshold=0.0,
        message=(
            f"begins with {value:.3g} in all elements, so that all units of the layer are the "
            f"same and remain so; as do {len(alike)} of {len(units)} weights"
        ),
        remedy=remedy,
    )


def as_initialised(weights: TensorRows) -> npt.NDArray[np.bool_]:
    """Tell which weights [R] look as PyTorch or Keras initialise linear layers and convolutions.

    Both draw from a uniform distribution between two ends: 1 / sqrt(inputs) in PyTorch (He and
    others, 2015, with the slope sqrt(5)), sqrt(6 / (inputs + outputs)) in Keras (Glorot and Bengio,
    2010). Of n elements, 256 or more, the extremes are 20 / n of an end or less away from it, and
    the standard deviation is four of its standard errors, sqrt(0.2 / n), away from that of a
    uniform distribution. What was trained is not.
    """
    low, high, std = (weights.column(name) for name in ("min", "max", "std"))
    found = np.zeros(len(weights), np.bool_)
    for at, shape in enumerate(weights.shapes):
        if not shape or len(shape) == 1 or math.prod(shape) < _ENOUGH:
            continue
        size = math.prod(shape)
        nearest, kernel = 1 - _AT_ENDS / size, math.prod(shape[:-2])
        for end in (
            1 / math.sqrt(math.prod(shape[1:])),
            math.sqrt(6 / (kernel * (shape[-2] + shape[-1]))),
        ):
            is_between = nearest * end < min(-low[at], high[at])
            is_between &= max(-low[at], high[at]) <= end * _ROUNDING
            scatter = std[at] * math.sqrt(3) / end
            found[at] |= is_between and abs(scatter - 1) < _SCATTER / math.sqrt(size)
    return found


class _InitialWeight(NamedTuple):
    """A weight at the first step.

    Attributes:
        at: Its row among the weights.
        worker: The worker.
        gain: Root mean square times the root of the smaller one of its numbers of inputs and
            outputs. Initialisations that keep the size of signals have one of 0.5 to 2.
        growth: Root mean square of the layer's output divided by that of its input; NaN if these
            were not saved.
        shape: Its numbers of outputs and of inputs.
        is_constant: Whether all elements are the same.
        is_zero: Whether they are all 0.
        has_units: Whether it has several inputs and outputs.
        is_recurrent: Whether it takes the state of a recurrent layer to the next one.
    """

    at: int
    worker: str
    gain: float
    growth: float
    shape: tuple[int, int]
    is_constant: bool
    is_zero: bool
    has_units: bool
    is_recurrent: bool


def _at_least_half(
    weights: list[_InitialWeight], is_bad: Callable[[_InitialWeight], bool]
) -> list[_InitialWeight]:
    """Return the bad weights of the first worker of which they are at least half."""
    for worker in sorted({weight.worker for weight in weights}):
        own = [weight for weight in weights if weight.worker == worker]
        bad = [weight for weight in own if is_bad(weight)]
        if bad and len(bad) >= _HALF * len(own):
            return bad
    return []


def _all_alike(weights: list[_InitialWeight]) -> list[_InitialWeight]:
    """Return the weights of the first worker if all are constant, and one goes into another."""
    own = [weight for weight in weights if weight.worker == min(w.worker for w in weights)]
    are_layered = any(a.shape[1] == b.shape[0] for a, b in permutations(own, 2))
    return own if are_layered and all(weight.is_constant for weight in own) else []


def _initial_weights(step: StepView, weights: TensorRows) -> list[_InitialWeight]:
    """Return the weights that are judged; none behind step 0."""
    if step.mode_step != 0:
        return []
    gradients = step.tensors(collections=("gradients",))
    trained = set(zip(parameters_of(step, gradients), gradients.workers, strict=True))
    growths = _growths(step)
    low, high, rms = weights.column("min"), weights.column("max"), _rms(weights)
    found = []
    for at, (name, worker) in enumerate(zip(weights.names, weights.workers, strict=True)):
        shape = weights.shapes[at]
        is_layer = (name, worker) in growths or _PACKED.search(name)
        if not (is_layer and shape and (name, worker) in trained):
            continue
        outputs, inputs, *kernel = shape
        fan = min(outputs, inputs) * math.prod(kernel)
        found.append(
            _InitialWeight(
                at,
                worker,
                float(rms[at]) * math.sqrt(fan),
                growths.get((name, worker), math.nan),
                (outputs, inputs),
                is_constant=bool(low[at] == high[at]),
                is_zero=bool(low[at] == high[at] == 0),
                has_units=outputs > 1 and inputs > 1,
                is_recurrent=".weight_hh_l" in name,
            )
        )
    return found


def _why_none(step: StepView, weights: TensorRows, memory: Memory) -> str:
    """Return why no weight is judged: at later steps, what was said at step 0."""
    if step.mode_step:
        return str(memory.get(_AT_START, _NO_START))
    memory[_AT_START] = f"only step 0 is judged, and {_lacking(step, weights)}"
    return str(memory[_AT_START])


def _lacking(step: StepView, weights: TensorRows) -> str:
    """Return what step 0 lacks."""
    signals = step.tensors(regex=(r"_(input|output)_0$",))
    if divided := why_no_layer(step, signals):
        return divided
    for name in ("weights", "gradients"):
        if not len(step.tensors(collections=(name,))):
            return f"no tensor of the collection {name} was saved there"
    if all(shape is None for shape in weights.shapes):
        return "the shapes of its weights are not known: write the run with the hook of Stepwatch"
    packed = [name for name in weights.names if _PACKED.search(name)]
    if not packed and not _growths(step):
        pattern = KNOWN_COLLECTIONS[MODULE_IO.name]
        return (
            "neither inputs and outputs of linear layers or convolutions were saved there "
            f"(include_regex {pattern}) nor weights of recurrent layers or attention"
        )
    return "no weight of a layer has a gradient there"


def _rms(rows: TensorRows) -> npt.NDArray[np.float64]:
    """Return the root mean square of each row [R]."""
    with np.errstate(over="ignore"):
        return np.sqrt(rows.column("mean") ** 2 + rows.column("std") ** 2)


def _growths(step: StepView) -> dict[tuple[str, str], float]:
    """Return how many times larger than its input a linear layer's output is, by its weight."""
    rows = step.tensors(regex=(r"_(input|output)_0$",))
    row_of = {pair: at for at, pair in enumerate(zip(rows.names, rows.workers, strict=True))}
    rms = _rms(rows)
    found = {}
    for layer in linear_layers(step, rows):
        into, out = (
            rms[row_of[f"{layer.module}_{s}_0", layer.worker]] for s in ("input", "output")
        )
        found[layer.weight, layer.worker] = float(out / into) if into > 0 else math.nan
    return found
