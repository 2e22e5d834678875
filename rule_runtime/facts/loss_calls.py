"""What losses compare that are called several times in a step: all calls together tell.

The inputs of a loss are numbered on in a step: the second call of one with two inputs has
`X_input_2` and `X_input_3`, and its output is `X_output_1`.

Shape legend: R = rows of labels, one for each (tensor, worker).
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rule_runtime.facts.labels_elsewhere import num_rows

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["AllCalls", "targets_of_all_calls"]

_PAIR: Final = 2


class AllCalls(NamedTuple):
    """The labels of a step, and with targets of a loss those of its other calls.

    Attributes:
        low: Smallest element [R].
        high: Largest element [R].
        sizes: Numbers of rows [R].
        names: Names of the tensors that each row stands for [R].
    """

    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]
    sizes: list[float]
    names: list[tuple[str, ...]]


def targets_of_all_calls(step: StepView, rows: TensorRows) -> AllCalls:
    """Return labels as all calls of their loss have them.

    A loss whose inputs are not as many for each output, two or more, may return several numbers:
    its first targets stand alone.

    Args:
        step: A step.
        rows: Its labels [R], `X_input_1` if they are targets of a loss.
    """
    low, high = rows.column("min"), rows.column("max")
    found = AllCalls(low.copy(), high.copy(), num_rows(rows), [(name,) for name in rows.names])
    losses = step.tensors(collections=("losses",))
    pairs = zip(losses.names, losses.workers, strict=True)
    num_calls = Counter((name.rpartition("_output_")[0], worker) for name, worker in pairs)
    for at, (name, worker) in enumerate(zip(rows.names, rows.workers, strict=True)):
        owner = name.rpartition("_input_1")[0]
        calls = num_calls[owner, worker]
        if not owner or calls < _PAIR:
            continue
        inputs = step.tensors(regex=(f"^{re.escape(owner)}_input_[0-9]+$",))
        inputs = inputs.select([place for place, of in enumerate(inputs.workers) if of == worker])
        num_inputs, rest = divmod(len(inputs), calls)
        if rest or num_inputs < _PAIR:
            continue
        numbers = [int(each.rpartition("_")[2]) for each in inputs.names]
        targets = inputs.select([i for i, n in enumerate(numbers) if n % num_inputs == 1])
        found.low[at] = np.fmin.reduce(targets.column("min"))
        found.high[at] = np.fmax.reduce(targets.column("max"))
        found.sizes[at] = float(np.sum(num_rows(targets)))
        found.names[at] = targets.names
    return found
