"""When the tensors of a step are computed, in the order of execution.

Shape legend: R = rows, one for each (tensor, worker).
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["Phase", "computed_tensors", "phases_of", "place_of"]

_PARAMETERS: Final = ("weights", "biases", "optimizer_variables")
_LOSSES: Final = ("losses", "metrics", "predictions")
_GRADIENTS: Final = ("gradients",)
_INPUTS_AND_OUTPUTS: Final = (r"_(input|output)_\d+$",)


class Phase(IntEnum):
    """A part of a step; the order is that of execution."""

    PARAMETERS = 0
    FORWARD = 1
    LOSS = 2
    BACKWARD = 3


def computed_tensors(step: StepView) -> TensorRows:
    """Return parameters, optimizer state, layer inputs and outputs, losses and gradients.

    Args:
        step: The step.
    """
    collections = (*_PARAMETERS, *_LOSSES, *_GRADIENTS)
    return step.tensors(collections=collections, regex=_INPUTS_AND_OUTPUTS)


def phases_of(step: StepView, rows: TensorRows) -> list[Phase]:
    """Return when each row is computed [R].

    Args:
        step: The step.
        rows: Rows of `computed_tensors` [R].
    """
    phases = dict.fromkeys(rows.names, Phase.PARAMETERS)
    for phase, selected in (
        (Phase.FORWARD, step.tensors(regex=_INPUTS_AND_OUTPUTS)),
        (Phase.BACKWARD, step.tensors(collections=_GRADIENTS)),
        (Phase.LOSS, step.tensors(collections=_LOSSES)),
    ):
        phases.update(dict.fromkeys(selected.names, phase))
    return [phases[name] for name in rows.names]


def place_of(rows: TensorRows, row: int) -> tuple[int, str]:
    """Return a sort key of a row: its position among those of its worker, and the worker.

    The hook saves the tensors of a phase in the order of execution.

    Args:
        rows: The rows [R].
        row: Position of the row.
    """
    worker = rows.workers[row]
    return row - rows.workers.index(worker), worker
