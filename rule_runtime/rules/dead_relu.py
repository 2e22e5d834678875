"""DeadRelu: a layer most of whose ReLU units are never active."""

from __future__ import annotations

from typing import Annotated, Final

import numpy as np

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.detectors.saturation import inactive_units
from rule_runtime.engine.findings import finding
from rule_runtime.engine.outcome import Missing, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, AtMost, Memory, Regex, Rule, Unit
from rule_runtime.engine.selection import saved_every
from rule_runtime.trial.step_view import StepView
from rule_runtime.trial.tensor_rows import worst
from rule_runtime.trial.value_pairs import row_values

__all__ = ["DeadRelu"]

_SAVE: Final = "save that collection, which nn.ReLU and F.relu fill"
_OTHER_STEPS: Final = "the model has none, or the hook saves them at other steps"


class DeadRelu(Rule):
    """Detects layers most of whose ReLU units are not active.

    How it decides:
        A unit is a feature of [N, U] or a channel of [N, U, H, W]. It is dead if less than
        `threshold_inactivity` percent of its outputs are not zero. The rule reports the layer with
        most dead units, if their share is above `threshold_layer`.

    Parameters:
        tensor_regex: Regular expressions of outputs besides the collection `relu_output`.
        threshold_inactivity: Share of non-zero outputs below which a unit is dead.
        threshold_layer: Share of dead units above which a layer is reported.

    What to try:
        Lower the learning rate, use a Kaiming initialisation, normalise the layer's inputs, or use
        LeakyReLU, ELU or GELU.
    """

    tensor_regex: Annotated[tuple[str, ...], Regex()] = (".*relu_output",)
    threshold_inactivity: Annotated[float, AtLeast(0), AtMost(100), Unit("%")] = 1.0
    threshold_layer: Annotated[float, AtLeast(0), AtMost(100), Unit("%")] = 50.0

    only_training = "steps of mode {} are not evaluated"

    def requires(self) -> tuple[CollectionConfig, ...]:
        """Return the collection with the outputs' values."""
        names = "|".join(self.tensor_regex)
        return saved_every(500, "relu_output", save_raw_tensor=True, include_regex=names)

    def check(self, step: StepView, memory: Memory) -> Outcome:  # noqa: ARG002
        """Compare the largest share of dead units of the step with the threshold."""
        rows = step.tensors(collections=("relu_output",), regex=self.tensor_regex)
        if not len(rows):
            named = f" or named as {', '.join(self.tensor_regex)}" if self.tensor_regex else ""
            reason = f"no output of a ReLU layer was saved in the collection relu_output{named}"
            raise Missing(reason, _OTHER_STEPS if step.declares("relu_output") else _SAVE)
        dead = np.full(len(rows), np.nan)
        for at, value in row_values(step, rows):
            dead[at] = inactive_units(value, self.threshold_inactivity)
        if np.isnan(dead).all():
            reason = f"the values of a batch of {min(rows.names)} were not saved"
            raise Missing(reason, step.how_to_save(rows.names))
        at = worst(rows, dead, largest=True)
        if dead[at] <= self.threshold_layer:
            return Passed()
        limit = self.threshold_layer
        message = f"{dead[at]:.4g} % of the units are active in less than "
        message += f"{self.threshold_inactivity:g} % of their outputs, more than {limit:g} %"
        return finding(self, step, (rows, at), ("dead_units_percent", dead[at], limit), message)
