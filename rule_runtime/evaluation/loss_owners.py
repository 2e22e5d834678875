"""Which losses of a step are those of modules or functions, whose inputs stand beside them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["input_patterns", "loss_owners"]


def loss_owners(step: StepView) -> list[tuple[str, str]]:
    """Return the names `X` of losses `X_output_0`, and their workers, sorted.

    What the loss compares is called `X_input_0` and `X_input_1`, whatever `X` is.

    Args:
        step: The step.
    """
    losses = step.tensors(collections=("losses",))
    pairs = set(zip(losses.names, losses.workers, strict=True))
    named = {(*name.rpartition("_output_")[:2], worker) for name, worker in pairs}
    return sorted((owner, worker) for owner, is_output, worker in named if is_output)


def input_patterns(step: StepView, number: int) -> tuple[str, ...]:
    """Return regular expressions of what the losses of a step compare, one for each name.

    Args:
        step: The step.
        number: 0 for what the model says, 1 for the targets.
    """
    return _patterns(tuple(sorted({owner for owner, _ in loss_owners(step)})), number)


@lru_cache(maxsize=64)
def _patterns(owners: tuple[str, ...], number: int) -> tuple[str, ...]:
    return tuple(f"^{re.escape(owner)}_input_{number}$" for owner in owners)
