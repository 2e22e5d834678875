"""NonFinite: detects the first non-finite tensor of a step in execution order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import IntEnum
from typing import Annotated, Final

import numpy as np

from rule_runtime.engine.outcome import Missing, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, Memory, Rule, Unit
from rule_runtime.facts.optimizer_steps import largest_count
from rule_runtime.facts.selection import (
    describe_not_finite,
    finding,
    finite_means,
    num_not_finite,
    saved_every,
)
from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["NonFinite"]


class _Phase(IntEnum):
    """A part of a step, in execution order."""

    PARAMETERS = 0
    LAYERS = 1
    LOSSES = 2
    GRADIENTS = 3


_REMEDIES: Final = {
    _Phase.PARAMETERS: "An update before this step broke it. Lower the learning rate or warm it "
    "up, clip gradients, and continue from an earlier checkpoint. Save every step "
    "(`--save-interval 1`) to see which tensor was the first.",
    _Phase.LAYERS: "Check this layer and its inputs: values outside the range of half precision, "
    "a division or a logarithm without an epsilon, NaN in the data.",
    _Phase.LOSSES: "The outputs are finite and the loss is not. Add an epsilon to logarithms and "
    "divisions, limit exponents, and check the targets.",
    _Phase.GRADIENTS: "The forward pass is finite and the backward pass is not. Avoid square "
    "roots, norms and divisions at zero, lower a fixed loss scale, and clip gradients.",
}


class NonFinite(Rule):
    """Detects the first non-finite tensor of a step in execution order.

    How it decides:
        The rule looks for NaN and infinite elements. It reports the first tensor that has any. It
        ignores:
        * infinite inputs and outputs of layers, because masks are infinite;
        * NaN in inputs alone while the loss is finite;
        * gradients that no optimizer used, up to `patience` steps in a row;
        * one of several losses alone, while the gradients are finite.

    Parameters:
        patience: Number of consecutive skipped steps that is reported.

    What to try:
        Follow the remedy of the finding: it depends on which tensor was the first.
    """

    # The default loss scale of 65,536 is below 1 after 17 skipped steps.
    patience: Annotated[int, AtLeast(1), Unit("skipped steps")] = 20

    collections = saved_every(10, "optimizer_steps", "weights", "gradients", "losses")

    def check(self, step: StepView, memory: Memory) -> Outcome:  # noqa: ARG002
        """Find the first non-finite tensor."""
        phases = list(_phases(step))
        if all(np.isnan(rows.column("nan")).all() for _, rows in phases):
            raise Missing("no statistics of parameters, layers, losses or gradients were saved")
        bad = [(phase, rows, at) for phase, rows in phases for at in _not_finite(phase, rows)]
        skipped = largest_count(step, "backward_passes_since") or 0
        is_skipped = 0 < skipped < self.patience
        if not bad or _are_harmless(step, bad, is_skipped=is_skipped):
            return Passed()
        phase, rows, at = min(bad, key=lambda tensor: (tensor[0], *_place(*tensor[1:])))
        measure, value, message = describe_not_finite(rows, at)
        if len(bad) > 1:
            message += f"; it is the first of {len(bad)} such tensors"
        if phase is _Phase.GRADIENTS and skipped:
            message += f"; {skipped:,.0f} steps in a row were skipped"
        measured, remedy = (measure, value, 0.0), _REMEDIES[phase]
        return finding(self, step, (rows, at), measured, message, remedy=remedy)


def _phases(step: StepView) -> Iterator[tuple[_Phase, TensorRows]]:
    """Yield the tensors of each phase."""
    losses = step.tensors(collections=("losses", "metrics", "predictions"))
    gradients = step.tensors(collections=("gradients",))
    layers = step.tensors(regex=(r"_(input|output)_\d+$",))
    others = {*losses.names, *gradients.names}
    parameters = step.tensors(collections=("weights", "biases", "optimizer_variables"))
    yield _Phase.PARAMETERS, parameters
    yield _Phase.LAYERS, layers.select([name not in others for name in layers.names])
    yield _Phase.LOSSES, losses
    yield _Phase.GRADIENTS, gradients


def _not_finite(phase: _Phase, rows: TensorRows) -> list[int]:
    """Return the rows with NaN, or with infinite elements unless these may be masks."""
    is_layer = phase is _Phase.LAYERS
    counts = np.nan_to_num(rows.column("nan")) if is_layer else num_not_finite(rows)
    return [int(at) for at in np.flatnonzero(counts > 0)]


def _place(rows: TensorRows, at: int) -> tuple[int, str]:
    """Return the position among the worker's tensors, which is the execution order."""
    worker = rows.workers[at]
    return at - rows.workers.index(worker), worker


def _are_harmless(
    step: StepView, bad: list[tuple[_Phase, TensorRows, int]], *, is_skipped: bool
) -> bool:
    """Return whether the model masks or the script skips all non-finite tensors."""
    phases = {phase for phase, _, _ in bad}
    if phases == {_Phase.GRADIENTS}:
        return is_skipped
    if not np.isfinite(finite_means(step.tensors(collections=("losses",)))).any():
        return False
    if phases == {_Phase.LOSSES}:
        return bool((step.tensors(collections=("gradients",)).column("l2") > 0).any())
    return all(re.search(r"_input_\d+$", rows.names[at]) for _, rows, at in bad)
