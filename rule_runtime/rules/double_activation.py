"""DoubleActivation: an activation before another one, or before a loss that includes it."""

from __future__ import annotations

import re
from typing import Annotated, Final

import numpy as np

from rule_runtime.engine.findings import finding
from rule_runtime.engine.needs import saved_steps_of_patience
from rule_runtime.engine.outcome import Missing, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, Memory, Rule, Unit
from rule_runtime.engine.selection import saved_every
from rule_runtime.facts.framework import advice_of
from rule_runtime.facts.losses import Losses, Takes
from rule_runtime.numerics.activations import activated_twice, squashed
from rule_runtime.numerics.row_memory import RowMemory
from rule_runtime.trial.step_view import StepView, TensorRows
from rule_runtime.trial.tensor_rows import worst

__all__ = ["DoubleActivation"]

_SIGNALS: Final = (r"(_(input|output)_|/(in|out)puts_?)[0-9]*$",)
_SOURCE: Final = re.compile(r"_output_[0-9]+$|/inputs[_0-9]*$")
"""Outputs of modules. The Keras hook saves inputs of layers: the output of the previous layer."""
_OF_LOGITS: Final = "went through an activation, and goes into a loss that takes logits"
_TWICE: Final = "is an activation of an activation of a module's output"


class DoubleActivation(Rule):
    """Detects activations that are applied to the output of another activation.

    How it decides:
        The rule compares minima and maxima of saved tensors. It reports these after `patience`
        saved training steps in a row:
        * the outputs that a loss of logits gets are a tanh or sigmoid of a module's output;
        * a tensor is an activation of an activation of a module's output.

    Parameters:
        patience: Saved steps in a row.

    What to try:
        Remove one of the two activations. CrossEntropyLoss, BCEWithLogitsLoss, and losses of Keras
        with from_logits=True, take the outputs of the last linear layer.
    """

    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 3

    collections = saved_every(10, "loss_inputs", "module_io")
    only_training = "steps of mode {} are not evaluated"

    needs = saved_steps_of_patience

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Compare the inputs of losses and activations with earlier activations.

        Memory: `rows`: number of consecutive suspicious steps for each of at most 2,048 tensors.
        """
        rows = step.tensors(regex=_SIGNALS)
        if {*rows.names} <= {*step.tensors(collections=("losses",)).names}:
            missing = "neither inputs of losses nor of activations were saved"
            raise Missing(missing, advice_of(step).loss_inputs)
        causes = _causes(step, rows)
        is_bad = np.array([at in causes for at in range(len(rows))], dtype=np.bool_)
        found = RowMemory(memory, rows.pairs).update(is_bad) >= self.patience
        if not found.any():
            return Passed()
        at = worst(rows, np.where(found, rows.column("min"), np.nan), largest=False)
        low, high = float(rows.column("min")[at]), float(rows.column("max")[at])
        message = f"has values from {low:.3g} to {high:.3g}, and {causes[at]}"
        return finding(self, step, (rows, at), ("minimum", low, 0.0), message)


def _causes(step: StepView, rows: TensorRows) -> dict[int, str]:
    """Return which inputs and outputs went through one activation too many, and why."""
    ends = np.stack([rows.column("min"), rows.column("max")], axis=1)
    pairs = list(zip(rows.workers, rows.column("size").tolist(), strict=True))
    numbers = {pair: number for number, pair in enumerate(dict.fromkeys(pairs))}
    groups = np.array([numbers[pair] for pair in pairs], dtype=np.int64)
    is_output = np.array([bool(_SOURCE.search(name)) for name in rows.names], dtype=bool)
    is_twice = activated_twice(ends, groups, is_output)
    causes: dict[int, str] = dict.fromkeys(np.flatnonzero(is_twice).tolist(), _TWICE)
    losses = [loss for loss in step.fact(Losses).losses if loss.takes is Takes.LOGITS]
    of_logits = {(f"{loss.owner}_input_0", loss.worker) for loss in losses}
    for at in np.flatnonzero(squashed(ends, groups, is_output)).tolist():
        if (rows.names[at], rows.workers[at]) in of_logits:
            causes.setdefault(at, _OF_LOGITS)
    return causes
