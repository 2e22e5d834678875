"""Outputs and targets of losses: of which kind a loss is, and what guessing gives.

A loss module, or function of torch, `X` has an output `X_output_0`, outputs of the model
`X_input_0` and targets `X_input_1`. A loss that the script computes itself is `Loss_output_0`.
"""

from __future__ import annotations

import math
import re
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from rule_runtime.configuration.collection_config import CollectionConfig

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = [
    "INPUT_VALUES",
    "LOSS_INPUTS",
    "Input",
    "LossInputs",
    "LossKind",
    "size_of_error",
]

LOSS_INPUTS: Final = CollectionConfig("loss_inputs", {"save_interval": "10"})
"""Asks the hook for statistics of the inputs of losses."""

INPUT_VALUES: Final = CollectionConfig(
    "input_values",
    {
        "save_interval": "100",
        "end_step": "301",
        "save_raw_tensor": "True",
    },
)
"""Asks the hook for the values of inputs, at every 100th step up to step 300."""

_OUTPUT: Final = "_output"
_FUNCTION: Final = "Loss"
_FIRST_CALL: Final = "_0"
_OF_FUNCTIONS: Final = f"{_FUNCTION}{_OUTPUT}_0"
_OF_ITS_INPUTS: Final = (f"{_FUNCTION}_input_0", f"{_FUNCTION}_input_1")
_OF_MODELS: Final = (r"^[A-Z][A-Za-z0-9]*_output_[0-9]+$",)
_WHOLE: Final = ("int", "uint")
_REAL: Final = ("float", "bfloat")
_ROUNDING: Final = 1.05
_BY_NAME: Final = re.compile(
    r"^(?:(?P<classes>CrossEntropy|NLL)|(?P<binary>BCE(?:WithLogits)?)|(?P<squares>MSE)"
    r"|(?P<distances>L1|SmoothL1|Huber))Loss_output"
)


class LossKind(Enum):
    """Kinds of losses.

    Attributes:
        CLASSES: Cross entropy of several classes.
        BINARY: Binary cross entropy.
        SQUARES: Mean squared error.
        DISTANCES: Mean absolute error, or a mix of that and half of the squared error.
        LOOKS_LIKE_CLASSES: Unknown by its name, but it compares scores with numbers of classes.
        UNKNOWN: None of these.
    """

    CLASSES = "classes"
    BINARY = "binary"
    SQUARES = "squares"
    DISTANCES = "distances"
    LOOKS_LIKE_CLASSES = "looks like classes"
    UNKNOWN = "unknown"

    @property
    def is_of_classes(self) -> bool:
        """Whether it is a cross entropy of several classes, or looks like one."""
        return self in (LossKind.CLASSES, LossKind.LOOKS_LIKE_CLASSES)

    @property
    def is_of_numbers(self) -> bool:
        """Whether it is known to be a regression loss."""
        return self in (LossKind.SQUARES, LossKind.DISTANCES)


class Input(NamedTuple):
    """Outputs or targets of a loss, by their statistics.

    Attributes:
        shape: Shape; None if it was not saved.
        dtype: Type, such as `int64`; "" if it is unknown.
        size: Number of elements.
        low: Smallest element.
        high: Largest element.
        mean: Mean of the elements.
        std: Their standard deviation.
    """

    shape: tuple[int, ...] | None
    dtype: str
    size: float
    low: float
    high: float
    mean: float
    std: float

    @property
    def mean_square(self) -> float:
        """Mean square of the elements."""
        return self.mean * self.mean + self.std * self.std


class LossInputs:
    """The inputs of the losses of a step.

    Args:
        step: The step.
    """

    def __init__(self, step: StepView) -> None:
        self._inputs = _described(step.tensors(regex=(r"_input_[0-2]$",)))
        for worker, pair in _only_outputs(step).items():
            self._inputs |= {(n, worker): i for n, i in zip(_OF_ITS_INPUTS, pair, strict=True)}

    def of(self, loss: str, worker: str, number: int) -> Input | None:
        """Return an input of a loss, None if it was not saved.

        Args:
            loss: Name of the loss, `X_output_0`.
            worker: The worker.
            number: 0 for outputs of the model, 1 for targets, 2 for a third input.
        """
        owner, _, call = loss.rpartition(_OUTPUT)
        is_later_call = bool(owner) and call != _FIRST_CALL  # its inputs have other numbers
        return None if is_later_call else self._inputs.get((f"{owner}_input_{number}", worker))

    def kind(self, loss: str, worker: str) -> LossKind:
        """Return the kind of a loss."""
        named = _BY_NAME.match(loss)
        if named is not None:
            return LossKind[str(named.lastgroup).upper()]
        scores, targets = self.of(loss, worker, 0), self.of(loss, worker, 1)
        if scores is None or targets is None or _num_classes(scores, targets) is None:
            return LossKind.UNKNOWN
        return LossKind.LOOKS_LIKE_CLASSES

    def num_classes(self, loss: str, worker: str) -> int | None:
        """Return the number of classes; None if scores of several classes were not saved."""
        scores, targets = self.of(loss, worker, 0), self.of(loss, worker, 1)
        if scores is None:
            return None
        found = None if targets is None else _num_classes(scores, targets)
        if found is None and len(scores.shape or ()) > 1:
            found = (scores.shape or ())[1]
        return found

    def guess(self, loss: str, worker: str, num_classes: int | None = None) -> float:
        """Return the loss of a model that knows nothing; NaN if it is unknown.

        It is ln(number of classes), ln 2 for a binary cross entropy, and the loss of answering 0
        for a regression, but at least 1.

        Args:
            loss: Name of the loss.
            worker: The worker.
            num_classes: Number of classes where the scores were not saved.
        """
        kind = self.kind(loss, worker)
        if kind is LossKind.BINARY:
            return math.log(2)
        if kind.is_of_classes:
            known = self.num_classes(loss, worker) or num_classes
            return math.nan if known is None else math.log(max(known, 2))
        targets = self.of(loss, worker, 1)
        if kind is LossKind.UNKNOWN or targets is None or not targets.std > 0:
            return math.nan
        return max(1.0, size_of_error(kind, loss, targets.mean_square))

    def largest_mean(self, loss: str, worker: str) -> float:
        """Return what a mean over the batch cannot exceed; NaN if it is unknown.

        For squares (rms(outputs) + rms(targets))^2, by Minkowski's inequality; for a cross entropy
        the distance of the largest score from the smallest and ln(number of classes); for NLLLoss
        the smallest logarithm.
        """
        kind, outputs, targets = (self.kind(loss, worker), *self._pair(loss, worker))
        if outputs is None:
            return math.nan
        if kind.is_of_numbers:
            if targets is None:
                return math.nan
            root = math.sqrt(outputs.mean_square) + math.sqrt(targets.mean_square)
            return size_of_error(kind, loss, root * root)
        if not kind.is_of_classes:
            return math.nan
        if loss.startswith("NLL"):
            return -outputs.low
        return outputs.high - outputs.low + math.log(max(self.num_classes(loss, worker) or 2, 2))

    def _pair(self, loss: str, worker: str) -> tuple[Input | None, Input | None]:
        return self.of(loss, worker, 0), self.of(loss, worker, 1)

    def is_sum(self, loss: str, worker: str, value: float, *, least: float, most: float) -> bool:
        """Return whether a loss is a sum: too large for a mean, or a fit if divided by targets.

        Args:
            loss: Name of the loss.
            worker: The worker.
            value: The loss.
            least: The smallest mean that fits.
            most: The largest mean that fits.
        """
        if value > _ROUNDING * self.largest_mean(loss, worker):
            return True
        targets = self.of(loss, worker, 1)
        return targets is not None and targets.size > 1 and least <= value / targets.size <= most


def size_of_error(kind: LossKind, loss: str, mean_square: float) -> float:
    """Return the largest regression loss that errors with a mean square can give.

    Args:
        kind: `SQUARES` or `DISTANCES`.
        loss: Name of the loss.
        mean_square: Mean square of the error.
    """
    if kind is LossKind.SQUARES:
        return mean_square
    root = math.sqrt(mean_square)
    # HuberLoss may be square far from 0, by its delta, which no file tells.
    return max(root, mean_square / 2) if loss.startswith("Huber") else root


def _num_classes(scores: Input, targets: Input) -> int | None:
    """Return the number of classes if targets are whole numbers, one for each row of scores."""
    if not (scores.shape and targets.shape and targets.dtype.startswith(_WHOLE)):
        return None
    if not scores.dtype.startswith(_REAL) or (targets.low < 0 and targets.high < 0):
        return None
    shape, of_rows = scores.shape, targets.shape
    for axis in (1, len(shape) - 1):
        if axis < len(shape) and shape[:axis] + shape[axis + 1 :] == of_rows:
            is_large = shape[axis] > 1 and targets.high < shape[axis]
            return shape[axis] if is_large else None
    if len(of_rows) == 1 and shape[-1] > max(targets.high, 1):  # [B * L] beside [B, L, C]
        return shape[-1] if of_rows[0] == math.prod(shape[:-1]) else None
    return None


def _described(rows: TensorRows) -> dict[tuple[str, str], Input]:
    """Return tensors by name and worker."""
    columns = [rows.column(name) for name in ("size", "min", "max", "mean", "std")]
    shapes, dtypes = rows.shapes, rows.dtypes
    return {
        pair: Input(shapes[at], dtypes[at] or "", *(float(column[at]) for column in columns))
        for at, pair in enumerate(zip(rows.names, rows.workers, strict=True))
    }


def _only_outputs(step: StepView) -> dict[str, tuple[Input, Input]]:
    """Return what the only model of each worker returns, and its targets, for a loss of the script.

    The targets are those of the loss, unless they are all the same, or else the `labels`; they must
    be numbers of the classes of which the output has scores.
    """
    losses = step.tensors(collections=("losses",))
    if _OF_FUNCTIONS not in losses.names:
        return {}
    of_losses = set(losses.names)
    known = _described(step.tensors(regex=("^labels$", f"^{_FUNCTION}_input_[01]$")))
    outputs = _described(step.tensors(regex=_OF_MODELS))
    found = {}
    for worker in step.workers:
        own = [name for name, of in outputs if of == worker and name not in of_losses]
        given, targets = (known.get((name, worker)) for name in _OF_ITS_INPUTS)
        if targets is not None and targets.low == targets.high:
            continue  # of a contrastive loss the output may be no scores: the match is in front
        targets = targets or known.get(("labels", worker))
        if len(own) == 1 and given is None and targets is not None:
            scores = outputs[own[0], worker]
            if _num_classes(scores, targets) is not None:
                found[worker] = (scores, targets)
    return found
