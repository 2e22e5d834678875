"""What a step says about its losses: kind, outputs, targets, baseline and, where saved, values."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import Missing
from rule_runtime.facts.loss_inputs import Input, LossInputs, LossKind, size_of_error
from rule_runtime.facts.missing import how_to_save_loss_inputs
from rule_runtime.facts.selection import finite_means

if TYPE_CHECKING:
    import numpy.typing as npt

    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["MODEL_OUTPUT_VALUES", "Loss", "LossFacts", "LossValues"]

MODEL_OUTPUT_VALUES: Final = CollectionConfig(
    "model_output_values",
    {
        "save_interval": "100",
        "end_step": "301",
        "save_raw_tensor": "True",
        "raw_max_elements": str(1 << 20),
    },
)
"""Asks the hook for the values of what models return, at every 100th step up to step 300."""

_OUTPUT: Final = "_output_"
_FIRST_CALL: Final = "_output_0"
_OF_KERAS: Final = "loss"
_PAIR_OF_KERAS: Final = ("predictions", "labels")
_OF_MODELS: Final = (r"^[A-Z]\w*_output_[0-9]+$",)
_LEAST: Final = 0.5
"""Part of the loss of guessing that a mean has at least before training."""
_ROUNDING: Final = 1.05
"""Factor by which means of statistics may be too small."""
_STATISTICS: Final = ("size", "min", "max")


class Loss(NamedTuple):
    """A loss of a step and what it compares.

    Attributes:
        row: Its row among the losses of the step.
        name: Name of its tensor, such as `MSELoss_output_0`.
        worker: The worker that saved it.
        value: Its value; NaN if it is not finite.
        kind: Which kind of loss it is.
        outputs: Shape, dtype and range of what the model returns; None if they were not saved.
        targets: The same of the targets.
        others: The same of a third input, such as weights.
        num_classes: Number of classes; None if there are none, or scores were not saved.
        guess: Loss of a model that knows nothing; NaN if that is unknown.
        is_only: Whether it is the only loss of its worker.
    """

    row: int
    name: str
    worker: str
    value: float
    kind: LossKind
    outputs: Input | None
    targets: Input | None
    others: Input | None
    num_classes: int | None
    guess: float
    is_only: bool

    @property
    def key(self) -> str:
        """Text that identifies the loss among all losses of the step."""
        return f"{self.worker}/{self.name}"

    @property
    def owner(self) -> str:
        """Name of the loss's class, such as `MSELoss`; `Loss` if it is no module."""
        return self.name.rpartition(_OUTPUT)[0]

    @property
    def plausible_mean(self) -> float:
        """Largest mean over a batch that outputs of this size give before training.

        Normal scores of standard deviation s give ln C + s sqrt(2 ln C) for C classes, and ln 2 and
        their root mean square for yes or no; log probabilities twice their mean; numbers the square
        of what outputs and targets are in size, or its root. NaN if that is unknown.
        """
        outputs, targets = self.outputs, self.targets
        if outputs is None or self.owner == "BCELoss":
            return math.nan
        if self.kind is LossKind.BINARY:
            return math.log(2) + math.sqrt(outputs.mean_square)
        if self.owner == "NLLLoss":
            return -2 * outputs.mean
        if self.kind.is_of_classes:
            of_guessing = math.log(max(self.num_classes or 2, 2))
            return of_guessing + outputs.std * math.sqrt(2 * of_guessing)
        if targets is None or not self.kind.is_of_numbers:
            return math.nan
        size = math.sqrt(outputs.mean_square) + math.sqrt(targets.mean_square)
        return _ROUNDING * size_of_error(self.kind, self.name, size * size)


class LossValues(NamedTuple):
    """Values of what a loss compares.

    Attributes:
        outputs: What the model returns [B, ...].
        targets: The targets [B, ...].
    """

    outputs: npt.NDArray[Any]
    targets: npt.NDArray[Any]


class LossFacts:
    """What a step says about its losses.

    Args:
        step: The step.

    Attributes:
        rows: The tensors of the losses [R].
        losses: Them and what they compare [R], sorted by name and worker.
    """

    def __init__(self, step: StepView) -> None:
        self._step = step
        self.rows: TensorRows = step.tensors(collections=("losses",))
        inputs = step.fact(LossInputs)
        workers = list(self.rows.workers)
        means = finite_means(self.rows).tolist()
        found = []
        for row, (name, worker) in enumerate(zip(self.rows.names, workers, strict=True)):
            outputs, targets, others = (inputs.of(name, worker, number) for number in range(3))
            if f"{name.rpartition(_OUTPUT)[0]}{_OUTPUT}1" in self.rows.names:
                others = None  # it is of the next call
            loss = Loss(
                row=row,
                name=name,
                worker=worker,
                value=means[row],
                kind=inputs.kind(name, worker),
                outputs=outputs,
                targets=targets,
                others=others,
                num_classes=inputs.num_classes(name, worker),
                guess=inputs.guess(name, worker),
                is_only=workers.count(worker) == 1,
            )
            found.append(loss)
        self.losses = tuple(sorted(found, key=lambda loss: (loss.name, loss.worker)))

    def require_losses(self) -> None:
        """Check that a loss was saved.

        Raises:
            Missing: No loss was saved.
        """
        if not self.losses:
            raise Missing("no loss of a training step was saved")

    def why_no_inputs(self) -> str:
        """Return why nothing is known about what losses compare, and what to change."""
        return f"no inputs of losses were saved: {how_to_save_loss_inputs(self._step)}"

    def is_sum(self, loss: Loss, most: float) -> bool:
        """Return whether a loss is a sum over the batch: too large for a mean of its outputs.

        Args:
            loss: A loss of the step.
            most: Largest mean that fits.
        """
        if loss.value <= loss.plausible_mean:
            return False
        least = loss.guess
        if loss.targets is not None and loss.kind.is_of_numbers:
            least = size_of_error(loss.kind, loss.name, loss.targets.mean_square)
        return self._step.fact(LossInputs).is_sum(
            loss.name, loss.worker, loss.value, least=_LEAST * least, most=most
        )

    def values(self, loss: Loss) -> LossValues | None:
        """Return the values of outputs and targets; None where either was saved without values.

        Keras saves predictions and labels instead of inputs of its loss.

        Args:
            loss: A loss of the step.
        """
        names = (f"{loss.owner}_input_0", f"{loss.owner}_input_1")
        if loss.name == _OF_KERAS:
            names = _PAIR_OF_KERAS
        elif not loss.name.endswith(_FIRST_CALL):
            return None
        values = self._step.values(names, loss.worker)
        if len(values) < len(names):
            return None
        return LossValues(values[names[0]], values[names[1]])

    def model_output(self, loss: Loss) -> npt.NDArray[Any] | None:
        """Return the output of the model that has the same elements as the outputs of a loss.

        It is found by size, minimum and maximum, and may have another shape.

        Args:
            loss: A loss of the step.

        Returns:
            None if there is none, or its values were not saved.
        """
        given = f"{loss.owner}_input_0"
        rows = self._step.tensors(regex=(*_OF_MODELS, f"^{re.escape(given)}$"))
        columns = np.stack([rows.column(of) for of in _STATISTICS], axis=1)
        of_worker = [at for at, worker in enumerate(rows.workers) if worker == loss.worker]
        wanted = [columns[at] for at in of_worker if rows.names[at] == given]
        candidates = sorted(
            rows.names[at]
            for at in of_worker
            if wanted and np.array_equal(columns[at], wanted[0])
            if rows.names[at] != given and rows.names[at] not in self.rows.names
        )
        return next(iter(self._step.values(candidates[:1], loss.worker).values()), None)
