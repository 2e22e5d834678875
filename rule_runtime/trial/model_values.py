"""What went into a model and came out of it at a step."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

import numpy.typing as npt

from hook_layer.format.modes import ModeKeys
from rule_runtime.trial.modes import Mode

if TYPE_CHECKING:
    from rule_runtime.trial.trial import Trial

__all__ = ["ModelValues"]


class ModelValues:
    """Inputs, labels and predictions of a trial."""

    def inputs(self, step: int, mode: Mode = ModeKeys.GLOBAL) -> list[npt.NDArray[Any]]:
        """Return the model's inputs at a step: the tensors of the collection `inputs`.

        Args:
            step: The step, counted in `mode`.
            mode: The mode.
        """
        names = self._trial.tensor_names(
            show_prefixed_tensors=True, step=step, mode=mode, collection="inputs"
        )
        return self._values_of(names, step, mode)

    def labels(self, step: int, mode: Mode = ModeKeys.GLOBAL) -> list[npt.NDArray[Any]]:
        """Return the labels at a step: the tensors with `label` in their names.

        Args:
            step: The step, counted in `mode`.
            mode: The mode.
        """
        return self._outputs("labels*", step, mode)

    def predictions(self, step: int, mode: Mode = ModeKeys.GLOBAL) -> list[npt.NDArray[Any]]:
        """Return the model's outputs at a step: the tensors with `prediction` in their names.

        Args:
            step: The step, counted in `mode`.
            mode: The mode.
        """
        return self._outputs("predictions*", step, mode)

    def _outputs(self, regex: str, step: int, mode: Mode) -> list[npt.NDArray[Any]]:
        names = self._trial.tensor_names(
            show_prefixed_tensors=True, step=step, mode=mode, regex=regex
        )
        return self._values_of(names, step, mode)

    def _values_of(self, names: Iterable[str], step: int, mode: Mode) -> list[npt.NDArray[Any]]:
        # With the mode, which the original forgets.
        return [
            self._trial.tensor(name).value(step, mode) for name in sorted(names, key=_number_in)
        ]

    @property
    def _trial(self) -> Trial:
        return cast("Trial", self)


def _number_in(name: str) -> tuple[int, str]:
    """Return what tensors of a model are ordered by: the number at the end of the name."""
    number = re.search(r"_([0-9]{1,18})$", name)
    return (0 if number is None else int(number[1]), name)
