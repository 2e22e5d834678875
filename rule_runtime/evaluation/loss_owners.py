"""Which losses of a step are those of modules or functions, whose inputs stand beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["loss_owners"]


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
