"""NonFinite: the first tensor of a step, in the order of execution, that is not finite."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Final

import numpy as np
import numpy.typing as npt

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import IssueFound, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, Memory, Rule, Unit
from rule_runtime.facts.optimizer_steps import OPTIMIZER_STEPS, largest_count
from rule_runtime.facts.selection import evidence, finite_means

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["NonFinite"]

_PARAMETERS, _FORWARD, _LOSS, _BACKWARD = range(4)
_LOSSES: Final = ("losses", "metrics", "predictions")
_JUDGED: Final = ("weights", "biases", "optimizer_variables", *_LOSSES, "gradients")
_INPUTS_AND_OUTPUTS: Final = r"_(input|output)_\d+$"
_INPUT: Final = re.compile(r"_input_\d+$")
_REMEDIES: Final = {
    _PARAMETERS: "An update before this step broke it: lower the learning rate or warm it up, and "
    "clip gradients; go on from the checkpoint before.",
    _FORWARD: "Look at this layer and its inputs: values out of the range of half precision, a "
    "division or a logarithm without an epsilon, NaN in the data.",
    _LOSS: "The outputs are finite and the loss is not: guard logarithms, divisions and "
    "exponentials, and check the targets.",
    _BACKWARD: "The forward pass is finite and the backward pass is not: guard square roots, norms "
    "and divisions at zero, lower a fixed loss scale, clip gradients.",
}
_BETWEEN: Final = (
    "It broke between the saved steps {} and {}, and what broke first was not saved: NaN in the "
    "data, a division or a logarithm, or an update that was too large. Run again with every step "
    "saved (`--save-interval 1`) to see the first tensor."
)
_FROM_THE_START: Final = (
    "It was broken before the first step that was judged: check the weights that the training "
    "begins with, or save every step from its beginning on (`--save-interval 1`)."
)


class NonFinite(Rule):
    """Finds the first tensor of a step, in the order of execution, with NaN or infinite elements.

    How it decides:
        From the counts of NaN and infinite elements of parameters, state of optimisers, inputs and
        outputs of modules, losses, metrics, predictions and gradients, in every mode. The evidence
        is the first of the step in this order: parameters and state, inputs and outputs, losses and
        what is told beside them, gradients; within each of them the order in
        which the hook captured them, which is the order of execution, and so for gradients from
        the last layer to the first. Of equal places the first worker by name. Infinite elements
        count in parameters, losses and gradients only: masks are minus infinity on purpose. Where
        nothing but inputs of modules and losses has NaN, and a loss was saved and is finite, they
        were masked, and it passes. Of parameters it says what broke them only if the step before
        was judged too; else between which steps they broke.

        A gradient that no optimizer used is no issue: the script or its loss scaler skipped the
        step, until it has skipped `patience` in a row. Nor is a loss of which the step's gradients,
        with which the optimizer stepped, know nothing, beside a finite one: its pass was skipped.

    Parameters:
        patience: Skipped steps in a row that are too many.

    What to try:
        What the evidence says: it depends on where the first one is.
    """

    # A loss scale of 65,536, the default, is below 1 after 17 skipped steps.
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
                `skipped`, saved steps in a row with a pass that was skipped.
        """
        rows = step.tensors(collections=_JUDGED, regex=(_INPUTS_AND_OUTPUTS,))
        num_nan, num_inf = rows.column("nan"), rows.column("inf")
        if not len(rows) or np.isnan(num_nan).all():
            return NotEvaluated("neither statistics nor values of any number are known")
        phases = _phases(step, rows)
        is_value = np.isin(rows.names, step.tensors(collections=_JUDGED).names)
        num_inf = np.where(is_value, np.nan_to_num(num_inf), 0)
        bad = np.flatnonzero(np.nan_to_num(num_nan) + num_inf > 0)
        if not bad.size or _is_masked(step, [rows.names[at] for at in bad]):
            memory["finite"] = [step.step, step.mode_step, step.mode.name]
            memory["skipped"] = 0
            return Passed()
        since = largest_count(step, "backward_passes_since")
        if self._is_skipped(step, {phases[at] for at in bad}, since, memory):
            return Passed()
        place = _places(rows)
        at = min(bad, key=lambda row: (phases[row], place[row], rows.workers[row]))
        noun, count = ("NaN", num_nan[at]) if num_nan[at] > 0 else ("infinite", num_inf[at])
        size = rows.column("size")[at]
        of_size = "" if np.isnan(size) else f" of {int(size)}"
        others = f"; it is the first of {bad.size} such tensors" if bad.size > 1 else ""
        if phases[at] == _BACKWARD and since:
            others += f"; {since:,.0f} steps in a row were skipped"
        return IssueFound(
            evidence(
                step,
                rows,
                int(at),
                measure="nan" if noun == "NaN" else "inf",
                value=float(count),
                threshold=0.0,
                message=f"{int(count)}{of_size} elements are {noun}{others}",
                remedy=_remedy(step, phases[at], memory.get("finite")),
            )
        )

    def _is_skipped(
        self, step: StepView, phases: set[int], since: float | None, memory: Memory
    ) -> bool:
        """Tell whether what is not finite was skipped, and few steps in a row were.

        Args:
            step: The step.
            phases: When tensors that are not finite are computed.
            since: Backward passes since an optimizer stepped; None if not known.
            memory: That of `check`.
        """
        if phases == {_BACKWARD} and since:
            return since < self.patience
        if phases != {_LOSS} or since != 0 or not _is_beside_finite(step):
            return False
        memory["skipped"] = memory.get("skipped", 0) + 1
        return bool(memory["skipped"] < self.patience)


def _is_beside_finite(step: StepView) -> bool:
    """Tell whether another loss of the step is finite, and gradients were saved."""
    losses, gradients = (step.tensors(collections=(name,)) for name in ("losses", "gradients"))
    has_finite = bool(np.isfinite(finite_means(losses)).any())
    return has_finite and bool((gradients.column("l2") > 0).any())


def _remedy(step: StepView, phase: int, finite: list[Any] | None) -> str:
    """Return what to try: an update is to blame for parameters only if the step before was fine."""
    if phase != _PARAMETERS:
        return _REMEDIES[phase]
    if finite is None:
        return _FROM_THE_START
    number, mode_step, mode = finite
    is_next = step.step == number + 1 or (
        step.mode.name == mode and step.mode_step == mode_step + 1
    )
    return _REMEDIES[phase] if is_next else _BETWEEN.format(number, step.step)


def _is_masked(step: StepView, names: list[str]) -> bool:
    """Tell whether only inputs are not finite, and the loss is: they were masked on the way."""
    losses = step.tensors(collections=("losses",)).column("mean")
    return all(_INPUT.search(name) for name in names) and bool(np.isfinite(losses).any())


def _phases(step: StepView, rows: TensorRows) -> list[int]:
    """Return when each row is computed in a step."""
    losses = set(step.tensors(collections=_LOSSES).names)
    gradients = set(step.tensors(collections=("gradients",)).names)
    forward = set(step.tensors(regex=(_INPUTS_AND_OUTPUTS,)).names)
    return [
        _LOSS
        if name in losses
        else _BACKWARD
        if name in gradients
        else _FORWARD
        if name in forward
        else _PARAMETERS
        for name in rows.names
    ]


def _places(rows: TensorRows) -> npt.NDArray[np.int64]:
    """Return the position of each row among those of its worker."""
    seen: dict[str, int] = {}
    places = []
    for worker in rows.workers:
        places.append(seen.get(worker, 0))
        seen[worker] = places[-1] + 1
    return np.array(places, dtype=np.int64)
