"""What recurrent layers of an untrained model returned: no module gets what their tanh gets.

Shape legend: R = rows, one for each (tensor, worker).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["bounded_signals", "slopes"]

_RECURRENT: Final = ".weight_hh"


def slopes(rows: TensorRows) -> npt.NDArray[np.float64]:
    """Return the mean slope of the tanh that gave each row [R]: 1 - h^2 where it returned h."""
    return 1.0 - rows.column("mean") ** 2 - rows.column("std") ** 2


def bounded_signals(step: StepView, rows: TensorRows) -> dict[tuple[str, str], list[int]]:
    """Return the rows of what recurrent layers returned, by the layer and worker.

    Only those that lie between -1 and 1.

    Args:
        step: The step.
        rows: Inputs and outputs of modules [R].
    """
    weights = step.tensors(regex=(re.escape(_RECURRENT),)).names
    owners = {name.rpartition(_RECURRENT)[0] for name in weights}
    found: dict[tuple[str, str], list[int]] = {}
    low, high = rows.column("min"), rows.column("max")
    for at in np.flatnonzero((low >= -1) & (high <= 1)).tolist():
        layer, is_output, _ = rows.names[at].rpartition("_output_")
        if is_output and any(owner == layer or owner.endswith(f"_{layer}") for owner in owners):
            found.setdefault((layer, rows.workers[at]), []).append(at)
    return found
