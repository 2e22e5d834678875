"""The losses of a step: their kinds, outputs, targets and possible values.

A loss module or function of torch `X` has an output `X_output_0`, model outputs `X_input_0` and
targets `X_input_1`. A loss computed by the script is `Loss_output_0`. If the hook observed its
computation, `Loss_standard/X` is the value that X has for the same outputs and targets, and
`Loss_matches/X` the number of saved steps in a row at which the loss had it, which shows the
formula. `Loss_minimised/X_0` is the sum of `X_output_0` and other terms. Losses of Keras have
similar names, `MeanSquaredErrorLoss_output_0`, next to `loss`, the mean of the epoch so far.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy.typing as npt

from hook_layer.format.known_collections import LOSS_MATCHES, MINIMISED, STANDARD_LOSS
from hook_layer.frameworks import KERAS, XGBOOST
from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.facts.framework import framework_of
from rule_runtime.facts.last_layers import LastLayer, last_layers
from rule_runtime.facts.saved_tensors import finite_means
from rule_runtime.numerics.class_pairs import class_axis
from rule_runtime.numerics.label_tally import MIN_ELEMENTS
from rule_runtime.numerics.loss_pair import LOWEST_LOGARITHM, MIN_MATCHES
from rule_runtime.numerics.series_memory import Series
from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = [
    "IGNORED",
    "INPUT_VALUES",
    "OUTPUTS_OF_MODELS",
    "RELATIVE_ERROR",
    "Input",
    "Loss",
    "LossKind",
    "Losses",
    "Takes",
    "described",
    "size_of_error",
    "with_constant_targets",
]

_FEW_VALUES: Final = {"save_interval": "100", "end_step": "301", "save_raw_tensor": "True"}
INPUT_VALUES: Final = CollectionConfig("input_values", _FEW_VALUES)
"""Values of inputs, at every 100th step up to step 300."""

_OUTPUT: Final = "_output_"
_FIRST_CALL: Final = "_output_0"
_FUNCTION: Final = "Loss_output_0"
_OF_PROBABILITIES: Final = ("BCELoss", "CategoricalCrossentropyLoss")
_TARGETS: Final = "_input_1"
_WEIGHTS_OF_ROWS: Final = r"^[A-Z]\w*Loss_input_2$"
_OF_KERAS: Final = "loss"
_PAIR_OF_KERAS: Final = ("predictions", "labels")
OUTPUTS_OF_MODELS: Final = (r"^[A-Z][A-Za-z0-9]*_output_[0-9]+$",)
_STATISTICS: Final = ("size", "min", "max", "mean", "std")
_IN_BATCH: Final = r"^[A-Z]\w*Loss_output_0$"
_BY_NAME: Final = re.compile(
    r"^(?:(?P<classes>CrossEntropy|NLL|(Sparse)?CategoricalCrossentropy(WithLogits)?)"
    r"|(?P<binary>BCE(WithLogits)?|BinaryCrossentropy(WithLogits)?)"
    r"|(?P<squares>MSE|MeanSquaredError)"
    r"|(?P<distances>L1|SmoothL1|MeanAbsoluteError|Huber))\d*Loss_output"
)
IGNORED: Final = -100
"""The class that PyTorch's losses ignore by default."""
RELATIVE_ERROR: Final = 1e-6
"""Relative error of statistics of equal numbers in single precision."""

_ROUNDING: Final = 1.05
"""Factor by which a mean may exceed its bound, because statistics are rounded."""
_MADE_UP: Final = (-1.0, 0.0, 1.0)
"""Constant targets in scripts: "generated" and "real", or the position of the right candidate."""


class LossKind(Enum):
    """Kinds of losses.

    Attributes:
        CLASSES: Cross entropy of several classes.
        BINARY: Binary cross entropy.
        SQUARES: Mean squared error.
        DISTANCES: Mean absolute error, or a mix with half of the squared error.
        LOOKS_LIKE_CLASSES: Unknown by name, but it compares scores with class numbers.
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


class Takes(Enum):
    """The form of model outputs that a loss expects."""

    LOGITS = "logits"
    PROBABILITIES = "probabilities"
    LOG_PROBABILITIES = "log probabilities"
    ANY = "any numbers"


class Input(NamedTuple):
    """Outputs or targets of a loss, by their statistics.

    Attributes:
        shape: Shape; None if it was not saved.
        dtype: Type, such as `int64`; "" if unknown.
        size: Number of elements.
        batch_range: Largest range of a batch if these are several batches; None for one batch.
    """

    shape: tuple[int, ...] | None
    dtype: str
    size: float
    low: float
    high: float
    mean: float
    std: float
    batch_range: float | None = None

    @property
    def mean_square(self) -> float:
        """Mean square of the elements."""
        return self.mean * self.mean + self.std * self.std

    @property
    def range(self) -> float:
        """Largest difference of two elements of a batch."""
        return self.high - self.low if self.batch_range is None else self.batch_range

    @property
    def has_fractions(self) -> bool:
        """Whether some elements are certainly no whole numbers: ends, sum or sum of squares."""
        sums = self.mean * self.size, self.mean_square * self.size
        if not math.isfinite(sum(sums)):
            return False
        rounding = RELATIVE_ERROR * self.size * max(1.0, self.low**2, self.high**2)
        is_whole = self.low.is_integer() and self.high.is_integer()
        return not is_whole or any(abs(total - round(total)) > rounding for total in sums)

    def plus(self, other: Input) -> Input:
        """Return the statistics of both together, with the shape and type of the other."""
        low, high = min(self.low, other.low), max(self.high, other.high)
        size = self.size + other.size
        share = other.size / size
        mean = self.mean + share * (other.mean - self.mean)
        square = self.mean_square + share * (other.mean_square - self.mean_square)
        std = math.sqrt(max(square - mean * mean, 0.0))
        # Single elements have no range of their own.
        batch_range = max(self.range, other.range) if min(self.size, other.size) > 1 else high - low
        return Input(other.shape, other.dtype, size, low, high, mean, std, batch_range)


class Loss(NamedTuple):
    """A loss of a step with its outputs and targets.

    Attributes:
        name: Name of its tensor, such as `MSELoss_output_0`.
        row: Its row among the losses of the step; -1 if the step has no such loss.
        value: Its value; NaN if it is not finite.
        kind: Kind of loss.
        outputs: Statistics of the model outputs; None if they were not saved.
        targets: Statistics of the targets; None if they were not saved.
        num_classes: Number of classes; None without classes or saved scores.
        is_of_keras: Whether it is a loss of Keras, which squeezes a last axis of one unit.
        has_row_weights: Whether its rows have weights, such as Keras's sample weights.
        last: The last layer before it.
        formula: Class name of the usual loss that it equals; "" if it has a name of its own, or
            none of them had its value at two saved steps in a row.
        standard: Values of usual losses of its outputs and targets, by class name.
        minimised: Value of the sum of it and other terms, such as a penalty; NaN without any.
    """

    name: str
    worker: str
    row: int
    value: float
    kind: LossKind
    outputs: Input | None
    targets: Input | None
    num_classes: int | None
    is_of_keras: bool = False
    has_row_weights: bool = False
    last: LastLayer = LastLayer()
    formula: str = ""
    standard: Mapping[str, float] = MappingProxyType({})
    minimised: float = math.nan

    @property
    def key(self) -> str:
        """Text that identifies the loss among all losses of the step."""
        return f"{self.worker}/{self.name}"

    @property
    def num_rows(self) -> int | None:
        """Number of rows of its targets or outputs; each class is a row; None if unknown."""
        of = self.targets or self.outputs
        if of is None or not of.shape:
            return None if of is None or not of.size > 0 else int(of.size)
        is_each = self.kind.is_of_classes and of.dtype.startswith("int")
        return int(of.size) if is_each else of.shape[0]

    @property
    def owner(self) -> str:
        """Name of the loss's class, such as `MSELoss`; `Loss` if it is not a module."""
        return self.name.rpartition(_OUTPUT)[0]

    @property
    def takes(self) -> Takes:
        """The form of model outputs that it expects."""
        name = self.formula or self.owner
        if name in ("NLLLoss", "KLDivLoss"):
            return Takes.LOG_PROBABILITIES
        if self.kind not in (LossKind.CLASSES, LossKind.BINARY):
            return Takes.ANY
        is_of_logits = "WithLogits" in name or name == "CrossEntropyLoss"
        return Takes.LOGITS if is_of_logits else Takes.PROBABILITIES

    @property
    def zero_output_loss(self) -> float:
        """Loss of all-zero outputs, as of an untrained model; NaN if unknown.

        It is ln(number of classes), ln 2 for a binary cross entropy, and the size of the targets,
        at least 1, for a regression.
        """
        if self.kind is LossKind.BINARY:
            return math.log(2)
        if self.kind.is_of_classes:
            return math.nan if self.num_classes is None else math.log(max(self.num_classes, 2))
        if not self.kind.is_of_numbers or self.targets is None or not self.targets.std > 0:
            return math.nan
        return max(1.0, size_of_error(self.kind, self.name, self.targets.mean_square))

    @property
    def largest_mean(self) -> float:
        """Largest possible mean over a batch for these outputs; NaN if unknown.

        For squares it is (rms(outputs) + rms(targets))^2, by Minkowski's inequality. For a cross
        entropy it is the loss of a row whose true class has the lowest score.
        """
        outputs, targets = self.outputs, self.targets
        if outputs is None:
            return math.nan
        largest = math.nan
        if self.kind.is_of_numbers and targets is not None:
            root = math.sqrt(outputs.mean_square) + math.sqrt(targets.mean_square)
            largest = size_of_error(self.kind, self.name, root * root)
        elif self.takes is Takes.PROBABILITIES:
            least = outputs.low if self.kind.is_of_classes else min(outputs.low, 1 - outputs.high)
            largest = -math.log(max(least, math.exp(LOWEST_LOGARITHM)))
        elif self.kind is LossKind.BINARY:
            largest = max(abs(outputs.low), abs(outputs.high)) + math.log(2)
        elif self.takes is Takes.LOG_PROBABILITIES:
            largest = -outputs.low
        elif self.kind.is_of_classes:
            largest = outputs.high - outputs.low + math.log(max(self.num_classes or 2, 2))
        return _ROUNDING * largest

    @property
    def correlation(self) -> float:
        """Correlation of outputs and targets; NaN without their mean squared error.

        E[(o - t)^2] = E[o^2] + E[t^2] - 2 E[o t].
        """
        outputs, targets, error = self.outputs, self.targets, self.standard.get("MSELoss")
        if outputs is None or targets is None or error is None:
            return math.nan
        product = (outputs.mean_square + targets.mean_square - error) / 2
        scale = outputs.std * targets.std
        return (product - outputs.mean * targets.mean) / scale if scale > 0 else math.nan

    @property
    def ignores_all_targets(self) -> bool:
        """Whether all targets are -100, or one negative number in a loss of classes."""
        of = self.targets
        if of is None or not of.dtype.startswith("int") or of.low != of.high:
            return False
        return of.high == IGNORED or (self.kind is LossKind.CLASSES and of.high < 0)

    @property
    def is_of_nothing(self) -> bool:
        """Whether it is not finite because it ignores all targets."""
        return self.ignores_all_targets and not math.isfinite(self.value)

    @property
    def has_made_up_targets(self) -> bool:
        """Whether all targets are -1, all 0 or all 1, as in adversarial or contrastive training."""
        of = self.targets
        return of is not None and of.size >= MIN_ELEMENTS and of.low == of.high in _MADE_UP


class Losses:
    """The losses of a step.

    Attributes:
        rows: The tensors of the losses [R].
        losses: The losses [R], sorted by name and worker.
    """

    def __init__(self, step: StepView) -> None:
        self._step = step
        means = {*step.tensors(collections=("losses",)).pairs}
        rows = step.tensors(collections=("losses",), regex=(_IN_BATCH,))
        # Those of Keras are batch losses, next to a mean of the epoch.
        self._of_keras = {worker for name, worker in rows.pairs if (name, worker) not in means}
        is_judged = [p not in means or p[1] not in self._of_keras for p in rows.pairs]
        self.rows: TensorRows = rows.select(is_judged)
        self._means = finite_means(self.rows).tolist()
        self._places = {p: r for r, p in enumerate(self.rows.pairs)}
        self._input_rows = step.tensors(regex=(r"_input_[01]$",))
        self._inputs = described(self._input_rows)
        self._standard, self._sums = (
            self._values_below(STANDARD_LOSS),
            self._values_below(MINIMISED),
        )
        self._matches = self._values_below(LOSS_MATCHES)
        weights = described(step.tensors(regex=(_WEIGHTS_OF_ROWS,)))
        self._weighted = {pair for pair, of in weights.items() if (of.low, of.high) != (1, 1)}
        if _FUNCTION in self.rows.names:
            self._add_outputs_of_models()
        self._known: dict[tuple[str, str], Loss] = {}
        self.losses = tuple(self.find(*pair) for pair in sorted(self._places))

    def _values_below(self, prefix: str) -> dict[str, dict[str, float]]:
        """Return the values of tensors with a prefix, by worker and by name without it."""
        rows = self._step.tensors(regex=(f"^{prefix}",))
        found: dict[str, dict[str, float]] = {}
        for (name, worker), value in zip(rows.pairs, finite_means(rows).tolist(), strict=True):
            found.setdefault(worker, {})[name.removeprefix(prefix)] = value
        return found

    def _add_outputs_of_models(self) -> None:
        """Use the outputs of a worker's only model as the outputs of the script's loss.

        Functions such as `F.cross_entropy(scores.view(-1, classes), targets)` show only their
        targets. The targets must be numbers of the model's classes, and not all equal: outputs of
        contrastive losses may not be scores.
        """
        models = described(self._step.tensors(regex=OUTPUTS_OF_MODELS))
        for worker in self._step.workers:
            own = [of for (name, by), of in models.items() if by == worker and name != _FUNCTION]
            targets = self._inputs.get(("Loss_input_1", worker))
            if targets is None or targets.low == targets.high or len(own) != 1:
                continue
            if _num_classes(own[0], targets) is not None:
                self._inputs.setdefault(("Loss_input_0", worker), own[0])

    def failed(self) -> list[tuple[Loss, tuple[TensorRows, int]]]:
        """Return losses without a value whose inputs were saved, with the row of their targets.

        The script ended with an error in them.
        """
        found = []
        for row, (name, worker) in enumerate(self._input_rows.pairs):
            pair = (name.removesuffix(_TARGETS) + _FIRST_CALL, worker)
            if name.endswith(f"Loss{_TARGETS}") and pair not in self._places:
                found.append((self.find(*pair), (self._input_rows, row)))
        return found

    def predicted(self) -> list[tuple[Loss, tuple[TensorRows, int]]]:
        """Return predictions of boosted trees as outputs of a loss whose kind is unknown.

        Predictions that are all one integer may be classes, of which one is frequent.
        """
        if self._step.fact(framework_of) is not XGBOOST:
            return []
        rows = self._step.tensors(regex=(r"^predictions$",))
        labels = described(self._step.tensors(regex=(r"^labels$",)))
        found = []
        for row, (pair, outputs) in enumerate(described(rows).items()):
            if not (outputs.low == outputs.high and outputs.low.is_integer()):
                targets = labels.get(("labels", pair[1]))
                loss = Loss(*pair, -1, math.nan, LossKind.UNKNOWN, outputs, targets, None)
                found.append((loss, (rows, row)))
        return found

    def find(self, name: str, worker: str) -> Loss:
        """Return the known facts about a loss `X_output_0`, even if this step did not save it."""
        pair = (name, worker)
        if pair not in self._known:
            self._known[pair] = self._loss(name, worker)
        return self._known[pair]

    def _loss(self, name: str, worker: str) -> Loss:
        owner = name.rpartition(_OUTPUT)[0]
        # Inputs of later calls have other numbers.
        is_first = not owner or name.endswith(_FIRST_CALL)
        outputs, targets = (
            self._inputs.get((f"{owner}_input_{number}", worker)) if is_first else None
            for number in range(2)
        )
        num_classes = _num_classes(outputs, targets)
        named = _BY_NAME.match(name)
        kind = LossKind.UNKNOWN if num_classes is None else LossKind.LOOKS_LIKE_CLASSES
        if named is not None:
            kind = LossKind[str(named.lastgroup).upper()]
        is_of_keras = worker in self._of_keras or self._step.fact(framework_of) is KERAS
        if num_classes is None and outputs is not None and len(outputs.shape or ()) > 1:
            num_classes = (outputs.shape or ())[-1 if is_of_keras else 1]
        row = self._places.get((name, worker), -1)
        value = self._means[row] if row >= 0 else math.nan
        last = self._step.fact(last_layers).get((f"{owner}_input_0", worker), LastLayer())
        has_weights = is_of_keras and (f"{owner}_input_2", worker) in self._weighted
        of_rows = (has_weights, last if is_first else LastLayer())
        known = (name, worker, row, value, kind, outputs, targets, num_classes, is_of_keras)
        total = self._sums.get(worker, {}).get(name.replace(_OUTPUT, "_"), math.nan)
        loss = Loss(*known, *of_rows, minimised=total)
        standard = self._standard.get(worker) if name == _FUNCTION else None
        matches = self._matches.get(worker, {})
        return loss if standard is None else _with_formula(loss, standard, matches)

    def values(self, loss: Loss) -> tuple[npt.NDArray[Any], npt.NDArray[Any]] | None:
        """Return the values of a loss's outputs and targets [B, ...]; None if either lacks values.

        Keras saves predictions and labels instead of the loss's inputs.
        """
        names = (f"{loss.owner}_input_0", f"{loss.owner}_input_1")
        if loss.name == _OF_KERAS:
            names = _PAIR_OF_KERAS
        elif not loss.name.endswith(_FIRST_CALL):
            return None
        values = self._step.values(names, loss.worker)
        return None if len(values) < len(names) else (values[names[0]], values[names[1]])


def _with_formula(loss: Loss, standard: Mapping[str, float], matches: Mapping[str, float]) -> Loss:
    """Return a loss with the usual loss that it equals, as a mean or a sum."""
    of = loss.outputs
    are_shares = of is not None and of.low >= 0 and of.high <= 1 + RELATIVE_ERROR
    formula = next(
        (
            name
            for name, count in matches.items()
            if count >= MIN_MATCHES and (are_shares or name not in _OF_PROBABILITIES)
        ),
        "",
    )
    is_constant = loss.targets is not None and loss.targets.low == loss.targets.high
    if not formula and is_constant and not loss.ignores_all_targets:
        return loss._replace(kind=LossKind.UNKNOWN, outputs=None, targets=None)  # a mask or weight
    named = _BY_NAME.match(f"{formula}{_OUTPUT}")
    kind = LossKind.UNKNOWN if named is None else LossKind[str(named.lastgroup).upper()]
    return loss._replace(kind=kind, formula=formula, standard=standard)


def size_of_error(kind: LossKind, loss: str, mean_square: float) -> float:
    """Return the largest regression loss of a kind for errors with a given mean square."""
    if kind is LossKind.SQUARES:
        return mean_square
    root = math.sqrt(mean_square)
    # The delta of HuberLoss is not saved: a large delta makes it half of the square.
    return max(root, mean_square / 2) if loss.startswith("Huber") else root


def with_constant_targets(step: StepView, losses: Collection[Series]) -> frozenset[Series]:
    """Return the losses of a step that need not fall, because their targets are constant.

    Their adversary learns, too, or the candidates become harder. Losses of the same worker without
    known targets may be their sum, or its mean in Keras, so they are included.
    """
    found = step.fact(Losses)
    known = [found.find(*pair) for pair in losses]
    workers = {loss.worker for loss in found.losses if loss.has_made_up_targets}
    return frozenset(
        (loss.name, loss.worker)
        for loss in known
        if loss.has_made_up_targets or (loss.targets is None and loss.worker in workers)
    )


def _num_classes(scores: Input | None, targets: Input | None) -> int | None:
    """Return the number of classes if targets are integers, one for each row of scores."""
    if scores is None or targets is None or not scores.shape or not targets.shape:
        return None
    is_whole = targets.dtype.startswith(("int", "uint"))
    is_real = scores.dtype.startswith(("float", "bfloat"))
    if not (is_whole and is_real) or (targets.low < 0 and targets.high < 0):
        return None
    axis = class_axis(targets.shape, scores.shape)
    num_classes = 0 if axis is None else scores.shape[axis]
    return num_classes if num_classes > max(targets.high, 1) else None


def described(rows: TensorRows) -> dict[tuple[str, str], Input]:
    """Return the statistics of tensors by name and worker, in the order of the rows."""
    columns = [rows.column(name) for name in _STATISTICS]
    return {
        pair: Input(
            rows.shapes[at], rows.dtypes[at] or "", *(float(column[at]) for column in columns)
        )
        for at, pair in enumerate(rows.pairs)
    }
