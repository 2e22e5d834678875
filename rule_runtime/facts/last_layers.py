"""The last layer before each loss: the activation of its output, and dropout.

The last layer is the last one that returned the outputs that a loss compares, unchanged or in
another shape. Its type and activation are what the hook recorded of the model, so they are known at
the first step, whatever range the outputs have by then.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from rule_runtime.facts.layer_names import LayerKinds, is_activation
from rule_runtime.facts.layers import Signals
from rule_runtime.trial.step_view import StepView

__all__ = ["BOUNDS", "LastLayer", "last_layers"]

_OF_LOSS: Final = "Loss"
_DROPOUT: Final = "Dropout"
_INF: Final = float("inf")
BOUNDS: Final = {
    "exponential": (0.0, _INF),
    "hard_sigmoid": (0.0, 1.0),
    "hard_tanh": (-1.0, 1.0),
    "log_softmax": (-_INF, 0.0),
    "relu": (0.0, _INF),
    "relu6": (0.0, 6.0),
    "sigmoid": (0.0, 1.0),
    "softmax": (0.0, 1.0),
    "softplus": (0.0, _INF),
    "softsign": (-1.0, 1.0),
    "tanh": (-1.0, 1.0),
}
"""Smallest and largest output of activations, by name."""


class LastLayer(NamedTuple):
    """The last layer before a loss.

    Attributes:
        activation: Activation of its output, `linear` for none; "" if unknown.
        is_dropped: Whether dropout changed its output, or its input if it is an activation alone.
    """

    activation: str = ""
    is_dropped: bool = False


_NONE: Final = LastLayer()


def last_layers(step: StepView) -> dict[tuple[str, str], LastLayer]:
    """Return the last layer before each loss, by input of the loss and worker.

    Losses whose last layer is unknown are omitted.
    """
    signals, kinds = step.fact(Signals), step.fact(LayerKinds)
    if not kinds.are_known:
        return {}
    prints, workers = signals.fingerprints, signals.rows.workers
    latest: dict[tuple[int, str], LastLayer] = {}
    for place, worker, fingerprint in zip(signals.places, workers, prints, strict=True):
        if place.kind != "output" or place.number:
            continue
        kind, into = kinds.of(place.module, worker), signals.at(place.module, "input", worker)
        before = -1 if into is None else prints[into]
        is_dropout = _DROPOUT in kind.type and before not in (-1, fingerprint)
        if is_dropout or kind.activation:
            is_dropped = is_activation(kind) and latest.get((before, worker), _NONE).is_dropped
            latest[fingerprint, worker] = LastLayer(kind.activation, is_dropout or is_dropped)
    found = {}
    for name, place, worker, fingerprint in zip(
        signals.rows.names, signals.places, workers, prints, strict=True
    ):
        is_of_loss = place.kind == "input" and place.module.endswith(_OF_LOSS)
        if is_of_loss and (fingerprint, worker) in latest:
            found[name, worker] = latest[fingerprint, worker]
    return found
