"""Finds where gradients vanish on their way from the loss to the first layer.

Shape legend: G = gradients, one for each (tensor, worker).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rule_runtime.facts.layers import Layers
from rule_runtime.facts.parameters import Gradients
from rule_runtime.trial.step_view import StepView

__all__ = ["Vanished", "are_mostly_zero", "find_vanishing_layer"]


class Vanished(NamedTuple):
    """Where gradients vanish on their way from the loss.

    Attributes:
        at: Row of the first gradient, in backward order, from which on all have vanished [G].
        are_all: Whether all gradients have vanished, already in the loss.
    """

    at: int
    are_all: bool


def find_vanishing_layer(
    step: StepView, worker: str, is_gone: npt.NDArray[np.bool_]
) -> Vanished | None:
    """Return where the gradients of a worker vanish; None if unknown, or if the first has not.

    Precondition: some gradients have vanished, `is_gone` [G].
    """
    gradients = step.fact(Gradients)
    own = [of == worker for of in gradients.rows.workers] & ~gradients.is_cancelled
    if is_gone[own].all():
        names = gradients.rows.names
        return Vanished(min(np.flatnonzero(own).tolist(), key=names.__getitem__), are_all=True)
    rows = {gradients.owners[at]: at for at in np.flatnonzero(own).tolist() if gradients.owners[at]}
    found = None
    for layer in step.fact(Layers).in_order.get(worker, ()):
        ats = [rows[name] for name in sorted(layer & rows.keys())]
        if not is_gone[ats].all():
            break
        found = Vanished(ats[0], are_all=False) if ats else found
    return found


def are_mostly_zero(step: StepView) -> bool:
    """Return whether at least half of the saved gradients are zero."""
    sizes = step.fact(Gradients).sizes
    return len(sizes) > 0 and 2 * np.count_nonzero(sizes == 0) >= len(sizes)
