"""Which tensors of a step went through one activation too many, by their statistics.

Shape legend: R = rows, one for each (tensor, worker).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import numpy as np

from rule_runtime.engine.outcome import Missing
from rule_runtime.facts.missing import how_to_save_loss_inputs
from rule_runtime.numerics.activations import activated_twice, is_softmax, squashed

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["ActivatedTensors"]

_OUTPUT: Final = re.compile(r"_output_[0-9]+$")
_LOGITS: Final = re.compile(r"^(CrossEntropy|BCEWithLogits)Loss_input_0$")
_OF_LOGITS: Final = "went through an activation, and goes into a loss that takes logits"
_TWICE: Final = "is an activation of an activation of a module's output"


class ActivatedTensors:
    """Inputs and outputs of modules and losses that went through one activation too many.

    Args:
        step: The step.

    Attributes:
        rows: All inputs and outputs of modules and losses [R].
        causes: Which rows are activated too often, and why.

    Raises:
        Missing: No such tensor was saved.
    """

    def __init__(self, step: StepView) -> None:
        self.rows = step.tensors(regex=(r"_(input|output)_[0-9]+$",))
        if {*self.rows.names} <= {*step.tensors(collections=("losses",)).names}:
            missing = "neither inputs of losses nor of activations were saved"
            raise Missing(missing, how_to_save_loss_inputs(step))
        low, high, mean, size = (self.rows.column(name) for name in ("min", "max", "mean", "size"))
        ends = np.stack([low, high], axis=1)
        pairs = list(zip(self.rows.workers, size.tolist(), strict=True))
        numbers = {pair: number for number, pair in enumerate(dict.fromkeys(pairs))}
        groups = np.array([numbers[pair] for pair in pairs], dtype=np.int64)
        is_output = np.array([bool(_OUTPUT.search(name)) for name in self.rows.names], dtype=bool)
        is_twice = activated_twice(ends, groups, is_output)
        self.causes = dict.fromkeys(np.flatnonzero(is_twice).tolist(), _TWICE)
        is_activated = squashed(ends, groups, is_output) | ((low == 0) & (high > 0))
        for at, name in enumerate(self.rows.names):
            of_softmax = (float(low[at]), float(high[at])), float(mean[at]), self.rows.shapes[at]
            if _LOGITS.match(name) and (is_activated[at] or is_softmax(*of_softmax)):
                self.causes.setdefault(at, _OF_LOGITS)
