"""What is known of the losses that labels are the targets of.

Shape legend: R = rows of labels, one for each (tensor, worker).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from rule_runtime.facts.loss_inputs import LossInputs, LossKind
from rule_runtime.facts.selection import finite_means

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["Beside", "losses_beside"]

_CLASSES: Final = ("int", "uint", "bool")


class Beside(NamedTuple):
    """What is known of the loss that labels are the targets of.

    Attributes:
        loss: Its mean; None if there is none.
        kind: Number of columns of what the model says, whether the labels are whole numbers, and
            the size of images: where these differ, the labels are of another task.
        is_of_numbers: Whether it compares numbers, and no classes.
        is_of_classes: Whether they are known to be classes, or labels of no loss.
        is_real: Whether the targets of a loss are real numbers.
        is_named: Whether it has a name of its own.
        is_own: Whether it is one of the script's own.
    """

    loss: float | None = None
    kind: str = ""
    is_of_numbers: bool = False
    is_of_classes: bool = True
    is_real: bool = False
    is_named: bool = True
    is_own: bool = False

    def may_make_up(self, value: float) -> bool:
        """Return whether a script may put this value in the place of data.

        Args:
            value: What all targets are.
        """
        is_code = value in (-1, 0, 1) if self.is_named else abs(value) <= 1
        return self.is_real and is_code


def losses_beside(step: StepView, rows: TensorRows) -> list[Beside]:
    """Return of each row [R] what is known of the loss that it is the target of.

    Args:
        step: The step.
        rows: Labels [R].
    """
    outputs = step.tensors(regex=(r"_output_0$",))
    pairs = zip(outputs.names, outputs.workers, strict=True)
    means = dict(zip(pairs, finite_means(outputs).tolist(), strict=True))
    inputs = step.fact(LossInputs)
    besides = []
    types = zip(rows.dtypes, rows.shapes, strict=True)
    for name, worker, (dtype, shape) in zip(rows.names, rows.workers, types, strict=True):
        is_whole = (dtype or "").startswith(_CLASSES)
        of_labels = ("whole" if is_whole else "real", *(shape or ())[2:])
        module, target, _ = name.rpartition("_input_1")
        loss = (f"{module}_output_0", worker)
        if not target:
            besides.append(Beside(kind=_kind(0, *of_labels)))
            continue
        kind, columns = inputs.kind(*loss), inputs.num_classes(*loss) or 0
        value = means.get(loss, math.nan)
        besides.append(
            Beside(
                loss=None if math.isnan(value) else value,
                kind=_kind(columns, *of_labels),
                is_of_numbers=kind.is_of_numbers,
                is_of_classes=is_whole or kind in (LossKind.CLASSES, LossKind.BINARY),
                is_real=inputs.of(*loss, 1) is not None and not is_whole,
                is_named=module != "Loss",
                is_own=not module.lower().endswith("loss"),
            )
        )
    return besides


def _kind(*parts: object) -> str:
    return " ".join(map(str, parts))
