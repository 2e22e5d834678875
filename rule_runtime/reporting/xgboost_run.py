"""Reads labels and predictions of the validation data that XGBoost's hook saved.

Shape legend: N = examples, K = classes, T = targets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from hook_layer.format.errors import FormatError
from rule_runtime.trial.errors import TrialError

if TYPE_CHECKING:
    from rule_runtime.trial.step_index import StepFile
    from rule_runtime.trial.trial import Trial

__all__ = ["MAX_ROUNDS", "Predictions", "PredictionsReader"]

MAX_ROUNDS: Final = 100
"""Maximum number of rounds, evenly between the first and the last."""

_LABELS: Final = "labels"
_PREDICTIONS: Final = "predictions"


@dataclass(frozen=True, eq=False)
class Predictions:
    """Labels and predictions of one round, of all workers; all finite.

    Attributes:
        step: The global step.
        labels: The labels [N].
        predictions: Predictions [N], or [N, K] for class probabilities.
    """

    step: int
    labels: npt.NDArray[Any]
    predictions: npt.NDArray[Any]


@dataclass
class PredictionsReader:
    """Reads labels and predictions per round, and notes what is skipped, and why."""

    trial: Trial
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._files: dict[str, dict[int, list[StepFile]]] = {_LABELS: {}, _PREDICTIONS: {}}
        for file in self.trial.step_files():
            names = {row.name for row in (file.index.locations if file.index is not None else ())}
            for name in names & self._files.keys():
                self._files[name].setdefault(file.step, []).append(file)
        self._labels: tuple[int, npt.NDArray[Any]] | None = None

    @property
    def missing(self) -> str | None:
        """A sentence about missing collections; None if none is missing."""
        missing = [name for name, files in self._files.items() if not files]
        if not missing:
            return None
        return (
            f"{' and '.join(missing)} were not saved: give the hook validation_data=, and include "
            "the collections of these names"
        )

    def rounds(self) -> Iterator[Predictions]:
        """Yield at most `MAX_ROUNDS` rounds in order; skips unreadable ones."""
        steps = sorted(self._files[_PREDICTIONS])
        if self.missing is not None:
            return
        if len(steps) > MAX_ROUNDS:
            self._note(f"{MAX_ROUNDS} of {len(steps)} rounds were looked at")
            picked = np.linspace(0, len(steps) - 1, MAX_ROUNDS).round().astype(int)
            steps = [steps[at] for at in picked]
        yield from filter(None, map(self._readable_round, steps))

    def last(self) -> Predictions | None:
        """Return the last readable round; None if there is none."""
        steps = sorted(self._files[_PREDICTIONS], reverse=True)
        if self.missing is not None:
            return None
        return next(filter(None, map(self._readable_round, steps)), None)

    def _readable_round(self, step: int) -> Predictions | None:
        try:
            return self._round(step)
        except (TrialError, FormatError, ValueError) as error:
            self._note(f"round {step} was left out: {error}")
            return None

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _round(self, step: int) -> Predictions:
        predictions = self._read(_PREDICTIONS, step)
        labels = self._labels_at(step)
        if len(labels) != len(predictions):
            raise ValueError(
                f"there are {len(labels)} labels, and predictions of {len(predictions)} rows"
            )
        if labels.ndim > 1 and labels.shape == predictions.shape:  # several targets [N, T]
            labels, predictions = labels.reshape(-1), predictions.reshape(-1)
        labels = labels.reshape(len(labels), -1)
        predictions = predictions.reshape(len(predictions), -1)
        if labels.shape[1] != 1:
            raise ValueError(f"the labels have the shape {list(labels.shape)}")
        is_finite = np.isfinite(labels).all(axis=1) & np.isfinite(predictions).all(axis=1)
        if not is_finite.any():
            raise ValueError("no example has a finite label and a finite prediction")
        if not is_finite.all():
            left_out = int(np.count_nonzero(~is_finite))
            self._note(f"round {step}: {left_out} examples that are not finite left out")
        predictions = predictions[is_finite]
        flat = predictions[:, 0] if predictions.shape[1] == 1 else predictions
        return Predictions(step, labels[is_finite, 0], flat)

    def _labels_at(self, step: int) -> npt.NDArray[Any]:
        """Return the labels of a round, otherwise of the last earlier or the first round."""
        steps = sorted(self._files[_LABELS])
        chosen = max((at for at in steps if at <= step), default=steps[0])
        if self._labels is None or self._labels[0] != chosen:
            self._labels = (chosen, self._read(_LABELS, chosen))
        return self._labels[1]

    def _read(self, name: str, step: int) -> npt.NDArray[Any]:
        tensor = self.trial.tensor(name)
        files = self._files[name][step]
        parts = [np.asarray(tensor.value(step, worker=file.worker)) for file in files]
        if any(part.dtype.kind not in "biuf" or part.ndim == 0 for part in parts):
            raise ValueError(f"{name} are not numbers [rows, ...]")
        return np.concatenate(parts)
