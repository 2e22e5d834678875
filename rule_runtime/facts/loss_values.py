"""Values of outputs and targets of a loss, which the hook saves at few steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt

    from rule_runtime.trial.step_view import StepView

__all__ = ["outputs_and_targets"]


def outputs_and_targets(
    step: StepView, loss: str, worker: str
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]] | None:
    """Return outputs of the model and targets; None where either was saved without values.

    Args:
        step: The step.
        loss: Name of the loss, `X_output_0`.
        worker: The worker.
    """
    owner = loss.removesuffix("_output_0")
    names = (f"{owner}_input_0", f"{owner}_input_1")
    values = step.values(names, worker)
    return None if len(values) < len(names) else (values[names[0]], values[names[1]])
