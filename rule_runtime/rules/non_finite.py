"""NonFinite: detects the first tensor of a step, in the order of execution, that is not finite."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Final

import numpy as np

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import IssueFound, Missing, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, Memory, Rule, Unit
from rule_runtime.facts.execution_order import Phase, computed_tensors, phases_of, place_of
from rule_runtime.facts.optimizer_steps import OPTIMIZER_STEPS, largest_count
from rule_runtime.facts.selection import describe_not_finite, evidence, finite_means

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView

__all__ = ["NonFinite"]

_INPUT: Final = re.compile(r"_input_\d+$")
_REMEDIES: Final = {
    Phase.PARAMETERS: "An update before this step broke it. Lower the learning rate or warm it up, "
    "clip gradients, and continue from an earlier checkpoint. Save every step (`--save-interval "
    "1`) to see which tensor was the first.",
    Phase.FORWARD: "Check this layer and its inputs: values outside the range of half precision, "
    "a division or a logarithm without an epsilon, NaN in the data.",
    Phase.LOSS: "The outputs are finite and the loss is not. Add an epsilon to logarithms and "
    "divisions, limit exponents, and check the targets.",
    Phase.BACKWARD: "The forward pass is finite and the backward pass is not. Avoid square roots, "
    "norms and divisions at zero, lower a fixed loss scale, and clip gradients.",
}


class NonFinite(Rule):
    """Detects the first tensor of a step, in the order of execution, that is not finite.

    How it decides:
        The rule looks for NaN and infinite elements in parameters, optimizer state, layer inputs
        and outputs, losses and gradients. It reports the first such tensor in the order of
        execution, because the others follow from it. These are ignored:

        * infinite layer inputs and outputs (masks are infinite on purpose);
        * NaN in inputs alone while the loss is finite, because the model masks them;
        * gradients that no optimizer used, until `patience` steps in a row were skipped;
        * one of several losses alone, while another loss and the gradients are finite.

    Parameters:
        patience: Skipped steps in a row that are an issue.

    What to try:
        Follow the remedy of the finding: it depends on which tensor was the first.
    """

    # A default loss scale of 65,536 is below 1 after 17 skipped steps.
    patience: Annotated[int, AtLeast(1), Unit("skipped steps")] = 20

    collections = (
        OPTIMIZER_STEPS,
        CollectionConfig("weights", {"save_interval": "10"}),
        CollectionConfig("gradients", {"save_interval": "10"}),
        CollectionConfig("losses", {"save_interval": "10"}),
    )

    def check(self, step: StepView, memory: Memory) -> Outcome:  # noqa: ARG002
        """Look for the first tensor that is not finite.

        Args:
            step: What was saved at the step.
            memory: Not used.
        """
        rows = computed_tensors(step)
        num_nan = rows.column("nan")
        if np.isnan(num_nan).all():  # also of no rows
            raise Missing("no statistics of parameters, layers, losses or gradients were saved")
        phases = phases_of(step, rows)
        is_layer = np.array(phases) == Phase.FORWARD
        num_inf = np.where(is_layer, 0, np.nan_to_num(rows.column("inf")))
        bad = np.flatnonzero(np.nan_to_num(num_nan) + num_inf > 0).tolist()
        skipped = largest_count(step, "backward_passes_since") or 0
        bad_phases = {phases[at] for at in bad}
        if bad_phases == {Phase.BACKWARD} and 0 < skipped < self.patience:
            return Passed()
        if _are_harmless(step, [rows.names[at] for at in bad], bad_phases):
            return Passed()
        at = min(bad, key=lambda row: (phases[row], *place_of(rows, row)))
        measure, value, message = describe_not_finite(rows, at)
        if len(bad) > 1:
            message += f"; it is the first of {len(bad)} such tensors"
        if phases[at] == Phase.BACKWARD and skipped:
            message += f"; {skipped:,.0f} steps in a row were skipped"
        return IssueFound(
            evidence(
                step,
                rows,
                at,
                measure=measure,
                value=value,
                threshold=0.0,
                message=message,
                remedy=_REMEDIES[phases[at]],
            )
        )


def _are_harmless(step: StepView, names: list[str], phases: set[Phase]) -> bool:
    """Return whether the model masks or the script skips all tensors that are not finite."""
    if not np.isfinite(finite_means(step.tensors(collections=("losses",)))).any():
        return not names
    if phases == {Phase.LOSS}:
        return bool((step.tensors(collections=("gradients",)).column("l2") > 0).any())
    return all(_INPUT.search(name) for name in names)
