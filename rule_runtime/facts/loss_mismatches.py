"""What can be wrong with what a loss gets and says: shapes, ranges, signs."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

import numpy as np

from rule_runtime.facts import wrong_distances
from rule_runtime.facts.loss_inputs import Input, LossInputs, LossKind
from rule_runtime.facts.loss_mismatch import LossMismatch
from rule_runtime.facts.loss_values import outputs_and_targets
from rule_runtime.facts.unfit_targets import unfit_targets_of
from rule_runtime.numerics.overlap import overlap_of

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["mismatch_of", "raw_overlap_of"]

_ELEMENTWISE: Final = re.compile(r"^(MSE|L1|SmoothL1|Huber)Loss_output")
_OF_LOGARITHMS: Final = re.compile(r"^(NLL|KLDiv)Loss_output")
_OF_RATES: Final = re.compile(r"^PoissonNLLLoss_output")
_OUTPUT: Final = "_output_0"
_OF_SCRIPTS: Final = f"Loss{_OUTPUT}"
_POSITIVE: Final = 1e-3
_CLOSE: Final = 1e-3
_FAR_BELOW: Final = 2.0
_MUCH_LARGER: Final = 10.0
_LEAST_SHARE: Final = 0.3
_ROUNDING: Final = 1.05
_EXACT: Final = 2e-5
_SURELY: Final = 100.0


def mismatch_of(
    step: StepView, inputs: LossInputs, name: str, worker: str, value: float
) -> LossMismatch | None:
    """Return what is wrong with a loss by itself, None if nothing is.

    Args:
        step: The step.
        inputs: The inputs of its losses.
        name: Name of the loss.
        worker: The worker.
        value: The loss.
    """
    outputs, targets = inputs.of(name, worker, 0), inputs.of(name, worker, 1)
    if outputs is None:
        return None
    if _OF_LOGARITHMS.match(name) and outputs.high > _POSITIVE:
        message = f"takes logarithms of probabilities, and gets numbers of up to {outputs.high:.3g}"
        return LossMismatch("largest", outputs.high, 0.0, message)
    if targets is None:
        return None
    if _OF_RATES.match(name):
        of_rates = _of_rates(step, (outputs, targets), worker, value)
        return of_rates or unfit_targets_of(name, outputs, targets)
    if _ELEMENTWISE.match(name):
        return _spread(outputs, targets)
    return (
        _of_scripts(inputs, name, worker, value)
        or unfit_targets_of(name, outputs, targets)
        or _of_sign(inputs, name, worker, value)
        or _of_every_pair(inputs, name, worker, value)
    )


def raw_overlap_of(
    step: StepView, inputs: LossInputs, name: str, worker: str, value: float
) -> LossMismatch | None:
    """Return what is wrong with a loss by values of outputs and targets, which are saved seldom.

    It is of the overlap of masks, and gets no probabilities; or it is the mean distance of each
    output from each target.

    Args:
        step: The step.
        inputs: The inputs of its losses.
        name: Name of the loss.
        worker: The worker.
        value: The loss.
    """
    outputs, targets = inputs.of(name, worker, 0), inputs.of(name, worker, 1)
    if outputs is None or targets is None or inputs.kind(name, worker) is not LossKind.UNKNOWN:
        return None
    is_raw = outputs.low < -_POSITIVE or outputs.high > 1 + _POSITIVE
    is_raw &= targets.low >= 0 and targets.high <= 1
    may_be_all = wrong_distances.may_be_of_every_distance(outputs, targets, value)
    if not (is_raw or may_be_all) or not math.isfinite(value):
        return None
    values = outputs_and_targets(step, name, worker)
    if values is None:
        return None
    if may_be_all and wrong_distances.is_of_every_distance(*values, value):
        return _told_of_pairs(outputs.size, "size")
    measure = overlap_of(*values, value) if is_raw else None
    if measure is None:
        return None
    far = outputs.low if outputs.low < -_POSITIVE else outputs.high
    message = f"is of the {measure} overlap of masks, made for outputs from 0 to 1, and gets "
    message += f"{outputs.low:.3g} to {outputs.high:.3g}"
    return LossMismatch("probability", far, 1.0 if far > 1 else 0.0, message)


def _of_scripts(inputs: LossInputs, name: str, worker: str, value: float) -> LossMismatch | None:
    """Return what is wrong with a distance that a script writes itself."""
    outputs, targets = inputs.of(name, worker, 0), inputs.of(name, worker, 1)
    is_unknown = name == _OF_SCRIPTS and inputs.kind(name, worker) is LossKind.UNKNOWN
    if outputs is None or targets is None or not is_unknown:
        return None
    if wrong_distances.is_distance_of_means(outputs, targets, value):
        message = (
            f"is the distance of the mean of {outputs.size:g} outputs from that of the targets, "
        )
        message += "not the mean of their distances"
        return LossMismatch("means", abs(outputs.mean - targets.mean), 0.0, message)
    return _spread(outputs, targets) if targets.low < targets.high else None


def _told_of_pairs(num: float, what: str) -> LossMismatch:
    size = num**2
    message = (
        f"is the mean {what} of all {size:g} differences of an output and a target, not of the "
    )
    return LossMismatch("elements", size, num, f"{message}{num:g} that belong together")


def _of_every_pair(inputs: LossInputs, name: str, worker: str, value: float) -> LossMismatch | None:
    """Return what is wrong if each output is compared with each target, as [B] with [B, 1].

    The mean square of all differences is var(o) + var(t) + (mean(o) - mean(t))^2; that of each
    output and its own target differs by twice the covariance. It is told only where a covariance of
    chance, sd(o) sd(t) / sqrt(n), would show.
    """
    outputs, targets = inputs.of(name, worker, 0), inputs.of(name, worker, 1)
    is_unknown = inputs.kind(name, worker) is LossKind.UNKNOWN
    if outputs is None or targets is None or not is_unknown or outputs.size != targets.size:
        return None
    of_means = outputs.mean - targets.mean
    of_pairs = outputs.std * outputs.std + targets.std * targets.std + of_means * of_means
    by_chance = 2 * outputs.std * targets.std / math.sqrt(max(outputs.size, 1.0))
    if not by_chance > _SURELY * _EXACT * value > 0 or abs(value - of_pairs) > _EXACT * value:
        return None
    return _told_of_pairs(outputs.size, "square")


def _of_sign(inputs: LossInputs, name: str, worker: str, value: float) -> LossMismatch | None:
    """Return what is wrong if a loss that nobody knows by name is driven below zero."""
    outputs, targets = inputs.of(name, worker, 0), inputs.of(name, worker, 1)
    kind = inputs.kind(name, worker)
    if outputs is None or targets is None or not value < 0:
        return None
    if kind is LossKind.LOOKS_LIKE_CLASSES:
        limit = -_FAR_BELOW * max(inputs.guess(name, worker), 1.0)
        if value < limit and inputs.of(name, worker, 2) is None:
            message = f"is {value:.4g}, and compares scores with classes: it should fall to 0 from "
            message += "above. Its sign is wrong, or it is of something else"
            return LossMismatch("loss", value, limit, message)
    if kind is not LossKind.UNKNOWN or outputs.size != targets.size:
        return None
    far, near = math.sqrt(outputs.mean_square), math.sqrt(targets.mean_square)
    if not far > _MUCH_LARGER * near > 0:
        return None
    least, most = far - near, far + near
    for low, high in ((least * least, most * most), (least, most)):
        if _LEAST_SHARE * low <= -value <= _ROUNDING * high:
            message = (
                f"is {value:.4g}, minus what outputs of size {far:.3g} are away from targets of "
            )
            message += f"size {near:.3g}: its sign is wrong"
            return LossMismatch("loss", value, 0.0, message)
    return None


def _of_rates(
    step: StepView, pair: tuple[Input, Input], worker: str, value: float
) -> LossMismatch | None:
    """Return what is wrong if an exponential stands before a loss that has one inside.

    A Poisson loss of a logarithm o and a count t is exp(o) - t o, that of a rate o - t ln(o); the
    mean of exp(o) is that of normally distributed o.
    """
    outputs, targets = pair
    if not outputs.low > 0:
        return None
    exponential = math.exp(min(outputs.mean + outputs.std * outputs.std / 2, 700.0))
    of_logarithm = exponential - targets.mean * outputs.mean
    of_rate = outputs.mean - targets.mean * math.log(outputs.mean)
    if abs(value - of_logarithm) >= abs(value - of_rate):
        return None
    rows = step.tensors(regex=(r"_(input|output)_0$",))
    low, high = rows.column("min"), rows.column("max")
    ends = {
        name: (float(low[at]), float(high[at]))
        for at, (name, of) in enumerate(zip(rows.names, rows.workers, strict=True))
        if of == worker
    }
    for name in sorted(ends):
        module, is_output, _ = name.partition(_OUTPUT)
        before = ends.get(f"{module}_input_0")
        if not is_output or before is None or ends[name] != (outputs.low, outputs.high):
            continue
        grown = [math.exp(min(end, 700.0)) for end in before]
        if before[0] < before[1] and np.allclose(grown, ends[name], rtol=_CLOSE, atol=0.0):
            message = f"takes logarithms of rates, and gets the exponentials that {module} returns"
            return LossMismatch("smallest", outputs.low, 0.0, message)
    return None


def _spread(outputs: Input, targets: Input) -> LossMismatch | None:
    """Return what is wrong if outputs and targets are spread over each other."""
    if outputs.shape is None or targets.shape is None:
        return None
    if len(outputs.shape) == len(targets.shape):
        return None  # every pair is meant, as of quantiles
    try:
        size = math.prod(np.broadcast_shapes(outputs.shape, targets.shape))
    except ValueError:
        return None
    most = max(outputs.size, targets.size)
    if size <= most:
        return None
    shapes = f"{list(outputs.shape)} and {list(targets.shape)}"
    message = f"compares outputs and targets of shapes {shapes}: {size} pairs, not {most:g}"
    return LossMismatch("elements", float(size), float(most), message)
