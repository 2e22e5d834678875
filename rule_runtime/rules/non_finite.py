"""NonFinite: detects the first tensor of a step, in the order of execution, that is not finite."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final

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
    Phase.PARAMETERS: "The update before this step broke it. Lower the learning rate or warm it "
    "up, clip gradients, and continue from an earlier checkpoint.",
    Phase.FORWARD: "Check this layer and its inputs: values outside the range of half precision, "
    "a division or a logarithm without an epsilon, NaN in the data.",
    Phase.LOSS: "The outputs are finite and the loss is not. Add an epsilon to logarithms and "
    "divisions, limit exponents, and check the targets.",
    Phase.BACKWARD: "The forward pass is finite and the backward pass is not. Avoid square roots, "
    "norms and divisions at zero, lower a fixed loss scale, and clip gradients.",
}
_BETWEEN: Final = (
    "It broke between the saved steps {} and {}. Save every step (`--save-interval 1`) to see "
    "which tensor was the first: NaN in the data, a division, a logarithm or a large update."
)
_FROM_THE_START: Final = (
    "It was broken before the first evaluated step. Check the initial weights, or save every step "
    "from the start (`--save-interval 1`)."
)


class NonFinite(Rule):
    """Detects the first tensor of a step, in the order of execution, that is not finite.

    How it decides:
        The rule looks for NaN and infinite elements in parameters, optimizer state, layer inputs
        and outputs, losses and gradients. It reports the first such tensor in the order of
        execution, because the others follow from it. These are ignored:

        * infinite layer inputs and outputs (masks are infinite on purpose);
        * NaN in inputs alone while the loss is finite, because the model masks them;
        * gradients that no optimizer used, until `patience` steps in a row were skipped;
        * one of several losses that is not finite, if an update followed, up to `patience` times.

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

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Look for the first tensor that is not finite.

        Args:
            step: What was saved at the step.
            memory: `finite`, the latest step that passed: its number, that in its mode, the mode;
                `skipped`, saved steps in a row with a skipped loss.
        """
        rows = computed_tensors(step)
        num_nan = rows.column("nan")
        if np.isnan(num_nan).all():  # also of no rows
            raise Missing("no statistics of parameters, layers, losses or gradients were saved")
        phases = phases_of(step, rows)
        is_layer = np.array(phases) == Phase.FORWARD
        num_inf = np.where(is_layer, 0, np.nan_to_num(rows.column("inf")))
        bad = np.flatnonzero(np.nan_to_num(num_nan) + num_inf > 0)
        if not bad.size or _are_masked_inputs(step, [rows.names[at] for at in bad]):
            memory.update(finite=[step.step, step.mode_step, step.mode.name], skipped=0)
            return Passed()
        since = largest_count(step, "backward_passes_since")
        if self._is_skipped(step, {phases[at] for at in bad}, since, memory):
            return Passed()
        at = min(bad.tolist(), key=lambda row: (phases[row], *place_of(rows, row)))
        measure, value, message = describe_not_finite(rows, at)
        if bad.size > 1:
            message += f"; it is the first of {bad.size} such tensors"
        if phases[at] == Phase.BACKWARD and since:
            message += f"; {since:,.0f} steps in a row were skipped"
        return IssueFound(
            evidence(
                step,
                rows,
                at,
                measure=measure,
                value=value,
                threshold=0.0,
                message=message,
                remedy=_remedy(step, phases[at], memory.get("finite")),
            )
        )

    def _is_skipped(
        self, step: StepView, phases: set[Phase], since: float | None, memory: Memory
    ) -> bool:
        """Return whether the script skipped what is not finite, fewer than `patience` times."""
        if phases == {Phase.BACKWARD} and since:
            return since < self.patience
        if phases != {Phase.LOSS} or since != 0:
            return False
        losses, gradients = (step.tensors(collections=(name,)) for name in ("losses", "gradients"))
        if np.isnan(finite_means(losses)).all() or not (gradients.column("l2") > 0).any():
            return False
        memory["skipped"] = memory.get("skipped", 0) + 1
        return bool(memory["skipped"] < self.patience)


def _are_masked_inputs(step: StepView, names: list[str]) -> bool:
    """Return whether only layer inputs are not finite although a loss is."""
    losses = step.tensors(collections=("losses",)).column("mean")
    return all(_INPUT.search(name) for name in names) and bool(np.isfinite(losses).any())


def _remedy(step: StepView, phase: Phase, finite: list[Any] | None) -> str:
    """Return what to try; an update broke parameters only if the previous step was finite."""
    if phase is not Phase.PARAMETERS:
        return _REMEDIES[phase]
    if finite is None:
        return _FROM_THE_START
    number, mode_step, mode = finite
    if step.step == number + 1 or (step.mode.name, step.mode_step) == (mode, mode_step + 1):
        return _REMEDIES[phase]
    return _BETWEEN.format(number, step.step)
