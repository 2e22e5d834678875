"""MissingActivation: linear layers one behind the other with nothing in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.engine.outcome import IssueFound, NotApplicable, NotEvaluated, Outcome, Passed
from rule_runtime.engine.rule import AtLeast, Memory, Rule, Unit
from rule_runtime.facts.linear_layers import (
    MODULE_IO,
    LinearLayer,
    LinearSignals,
    linear_layers,
    why_no_layer,
)
from rule_runtime.facts.other_uses import OtherUses
from rule_runtime.facts.selection import evidence, is_training
from rule_runtime.numerics.row_memory import fingerprints

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["MissingActivation"]

_COLUMNS: Final = ("size", "min", "max", "mean", "std", "l2")
_SEVERAL: Final = 2
_ONE_IN: Final = 3
_REMEDY: Final = "Put the model's activation between the two layers, or make one layer of them."


class MissingActivation(Rule):
    """Finds a linear layer whose output goes into another linear layer as it is.

    How it decides:
        A layer is linear if its weight is a matrix [outputs, inputs], and the last dimensions of
        its output and input are of these sizes; or a kernel [outputs, inputs, ...], and the second
        dimensions are. So embeddings, normalisations and depthwise convolutions are not. Its output
        goes into another one if size, minimum, maximum, mean, standard deviation and l2 norm are
        equal (layers that change nothing, such as Identity or Flatten, may lie between, and
        dropout, told by its growing extremes). It is followed through normalisation layers, which
        have a vector as weight and as bias, and through pooling, too: there one such place may be
        on purpose, and two are needed, and one in three of all layers of this kind that come behind
        a linear one. No two layers could be made one if the output is used elsewhere, too: it goes
        into several modules, as those for queries, keys and values or the identity around a block;
        or a module that both are in returns it. Nor is it sure where functions that the hook does
        not see, as sums around a block and concatenations, may have used it: where a tensor behind
        the layer with as many channels is no output of a module, and no activation, pooling or
        softmax of one, as far as its minimum, maximum and mean tell. It fires if the inner width is
        at least the smaller one of the outer widths, at `patience` saved training steps in a row. A
        narrow inner width, as in an autoencoder or a low-rank layer, is on purpose.

    Parameters:
        patience: Saved steps in a row.

    What to try:
        An activation between the layers.
    """

    patience: Annotated[int, AtLeast(1), Unit("saved steps")] = 3

    collections = (MODULE_IO, CollectionConfig("weights", {"save_interval": "10"}))

    def check(self, step: StepView, memory: Memory) -> Outcome:
        """Follow the outputs of linear layers.

        Args:
            step: What was saved at the step.
            memory: `streak`: for how many saved steps there was such a pair.
        """
        if not is_training(step):
            return NotApplicable(f"steps of mode {step.mode.name} are not judged")
        rows = step.tensors(regex=(r"_(input|output)_\d+$",))
        layers = list(linear_layers(step, rows))
        if not layers:
            why = why_no_layer(step, rows)
            return NotEvaluated(why or "no linear layer was saved with its input and output")
        pairs = _pairs(step, rows, layers)
        memory["streak"] = min(memory.get("streak", 0) + 1, self.patience) if pairs else 0
        if memory["streak"] < self.patience:
            return Passed()
        first = min(pairs)
        return IssueFound(
            evidence(
                step,
                rows,
                first.at,
                measure="layers_without_activation",
                value=float(len(pairs)),
                threshold=0.0,
                message=first.message,
                remedy=_REMEDY,
            )
        )


class _Pair(NamedTuple):
    """Two layers with nothing between them.

    Attributes:
        name: What goes into the second one.
        worker: The worker.
        at: Its row.
        message: The finding in words.
        is_direct: Whether there is nothing at all between them, or only dropout.
    """

    name: str
    worker: str
    at: int
    message: str
    is_direct: bool


def _pairs(step: StepView, rows: TensorRows, layers: list[LinearLayer]) -> list[_Pair]:
    """Return pairs of layers without an activation between them."""
    prints = fingerprints([rows.column(name) for name in _COLUMNS]).tolist()
    row_of = {pair: at for at, pair in enumerate(zip(rows.names, rows.workers, strict=True))}
    carried = LinearSignals(step, rows, layers, prints)
    uses = OtherUses(step, rows, layers, prints)
    found = []
    for layer in layers:
        into = row_of[f"{layer.module}_input_0", layer.worker]
        signal = carried.of(prints[into], layer.worker)
        if signal is None or signal.source.module == layer.module:
            continue
        source = signal.source
        is_narrow = source.outputs < min(source.inputs, layer.outputs)
        if not is_narrow and not uses.may_be(signal, layer):
            message = f"goes into {layer.module} as it is: {source.module} and {layer.module} are "
            message += "one linear layer"
            if not signal.is_direct:
                message = f"goes into {layer.module} with no activation since {source.module}"
            at = signal.path[-1]
            found.append(_Pair(rows.names[at], layer.worker, at, message, signal.is_direct))
    direct = [pair for pair in found if pair.is_direct]
    indirect = len(found) - len(direct)
    is_usual = indirect >= max(_SEVERAL, carried.num_between / _ONE_IN)
    return found if is_usual else direct
