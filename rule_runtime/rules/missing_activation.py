"""MissingActivation: consecutive linear layers without an activation in between."""

from __future__ import annotations

from typing import Annotated, Final

from rule_runtime.detectors.streak import streak
from rule_runtime.engine.findings import finding
from rule_runtime.engine.needs import saved_steps_of_patience
from rule_runtime.engine.outcome import NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, Memory, Rule, Unit
from rule_runtime.engine.selection import saved_every
from rule_runtime.facts.layer_links import Link, layer_links
from rule_runtime.facts.layers import Layers, Signals
from rule_runtime.trial.step_view import StepView

__all__ = ["MissingActivation"]

_SEVERAL: Final = 2
"""Required pairs with normalisation or pooling in between, if the model has further layers."""
_SHARE: Final = 0.25
"""Share of the linear layers that must start such a pair."""


class MissingActivation(Rule):
    """Detects a linear layer whose output goes straight into another linear layer.

    How it decides:
        The rule compares the statistics of outputs and inputs of linear layers and convolutions. It
        reports a pair after `patience` saved steps if the output of the first is the input of the
        second, unchanged or after dropout. With normalisation or pooling between, it needs two such
        pairs, or a model of two layers. It ignores bottlenecks, and outputs that something else
        uses too.

    Parameters:
        patience: Saved steps in a row.

    What to try:
        Put the model's activation between the two layers, or merge them into one.
    """

    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 3

    collections = saved_every(10, "module_io", "weights")
    only_training = "steps of mode {} are not evaluated"

    needs = saved_steps_of_patience

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Find pairs of linear layers.

        Memory: `streak`: number of consecutive saved steps with such a pair.
        """
        layers = step.fact(Layers)
        if not layers.linear:
            return NotEvaluated(layers.why_none_is_linear)
        links = _chosen(layer_links(step), len(layers.linear))
        if streak(memory, is_bad=bool(links)) < self.patience:
            return Passed()
        rows = step.fact(Signals).rows
        first = min(links, key=lambda link: (rows.names[link.path[-1]], link.source.worker))
        one, two = first.source.module, first.target.module
        message = f"goes into {two} with no activation since {one}"
        if first.is_direct:
            message = f"goes into {two} as it is: {one} and {two} are one linear layer"
        measured = ("layers_without_activation", len(links), 0.0)
        return finding(self, step, (rows, first.path[-1]), measured, message)


def _chosen(links: list[Link], num_layers: int) -> list[Link]:
    """Return the direct pairs, and the others if they are too many to be deliberate."""
    direct = [link for link in links if link.is_direct]
    is_usual = len(links) - len(direct) >= max(min(_SEVERAL, num_layers - 1), _SHARE * num_layers)
    return links if is_usual else direct
