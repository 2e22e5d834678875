"""Which tensors of a step went through one activation too many, by their statistics.

Shape legend: R = rows, one for each (tensor, worker).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rule_runtime.engine.outcome import Missing
from rule_runtime.facts.losses import Loss, Losses
from rule_runtime.facts.missing import how_to_save_loss_inputs
from rule_runtime.numerics.activations import (
    activated_twice,
    in_range_of_two,
    is_softmax,
    squashed,
)

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["ActivatedTensors", "Cause"]

_OF_MODULES: Final = (r"_(input|output)_[0-9]+$",)
_OUTPUT: Final = re.compile(r"_output_[0-9]+$")
_LOGITS: Final = re.compile(r"^(CrossEntropy|BCEWithLogits)Loss_input_0$")
_BEYOND: Final = 0.5
"""Standard deviations of targets by which one lies beyond the range of the outputs."""
_MANY: Final = 1.25
"""Standard deviations from their mean at which targets lie beyond it, so that many do."""


class Cause(NamedTuple):
    """Why a tensor went through one activation too many.

    Attributes:
        message: The cause in words.
        is_sure: Whether other tensors never look like that.
    """

    message: str
    is_sure: bool = True


_OF_LOGITS: Final = Cause("went through an activation, and goes into a loss that takes logits")
_TWICE: Final = Cause("is an activation of an activation of a module's output")
_CUT: Final = Cause("went through an activation that cannot reach the targets")
_RANGE: Final = Cause("reaches both ends of what two activations give", is_sure=False)


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
        self.rows = step.tensors(regex=_OF_MODULES)
        losses = step.fact(Losses)
        if {*self.rows.names} <= {*losses.rows.names}:
            lacking = "neither inputs of losses nor of activations were saved"
            raise Missing(lacking, how_to_save_loss_inputs(step))
        self._ends = np.stack([self.rows.column("min"), self.rows.column("max")], axis=1)
        pairs = list(zip(self.rows.workers, self.rows.column("size").tolist(), strict=True))
        groups = {pair: number for number, pair in enumerate(dict.fromkeys(pairs))}
        group = np.array([groups[pair] for pair in pairs], dtype=np.int64)
        is_output = np.array([bool(_OUTPUT.search(name)) for name in self.rows.names], dtype=bool)
        is_squashed = squashed(self._ends, group, is_output)
        is_twice = activated_twice(self._ends, group, is_output)
        self.causes: dict[int, Cause] = {int(at): _TWICE for at in np.flatnonzero(is_twice)}
        names = zip(self.rows.names, self.rows.workers, strict=True)
        places = {pair: at for at, pair in enumerate(names)}
        for loss in losses.losses:
            at = places.get((f"{loss.owner}_input_0", loss.worker))
            cause = None if at is None else self._cause(loss, at, is_squashed)
            if at is not None and cause is not None:
                self.causes.setdefault(at, cause)

    def _cause(self, loss: Loss, at: int, is_squashed: npt.NDArray[np.bool_]) -> Cause | None:
        """Return why the first input of a loss went through one activation too many."""
        name, shape = self.rows.names[at], self.rows.shapes[at]
        ends = (float(self._ends[at, 0]), float(self._ends[at, 1]))
        are_logits = _LOGITS.match(name) is not None
        is_relu = ends[0] == 0 < ends[1]
        is_activated = bool(is_squashed[at]) or is_relu
        if are_logits and (is_activated or is_softmax(ends, self.rows.column("mean")[at], shape)):
            return _OF_LOGITS
        if is_activated and _cannot_reach(loss):
            return _CUT
        return _RANGE if in_range_of_two(ends, shape, are_logits=are_logits) else None


def _cannot_reach(loss: Loss) -> bool:
    """Tell whether many targets of a regression lie beyond its outputs, which were activated.

    Outputs end at 0, or at -1 if some are negative; and at 1, unless they are those of a ReLU.
    """
    outputs, targets = loss.outputs, loss.targets
    if outputs is None or targets is None or not loss.kind.is_of_numbers:
        return False
    if outputs.shape != targets.shape:
        return False
    lowest = 0.0 if outputs.low >= 0 else -1.0
    highest = np.inf if outputs.low == 0 else 1.0
    return any(
        farthest > _BEYOND * targets.std > 0 and middle > -_MANY * targets.std
        for farthest, middle in (
            (lowest - targets.low, lowest - targets.mean),
            (targets.high - highest, targets.mean - highest),
        )
    )
