"""The last layer before each loss, and the activation of its output.

The last layer is the last one that returned the outputs that a loss compares, unchanged or in
another shape. Its type and activation are what the hook recorded of the model, so they are known at
the first step, whatever range the outputs have by then.
"""

from __future__ import annotations

from typing import Final

from rule_runtime.facts.layer_names import LayerKinds
from rule_runtime.facts.layers import Signals
from rule_runtime.trial.step_view import StepView

__all__ = ["BOUNDS", "last_activations"]

_OF_LOSS: Final = "Loss"
_INF: Final = float("inf")
BOUNDS: Final = {
    "exponential": (0.0, _INF),
    "hard_sigmoid": (0.0, 1.0),
    "hard_tanh": (-1.0, 1.0),
    "relu": (0.0, _INF),
    "relu6": (0.0, 6.0),
    "sigmoid": (0.0, 1.0),
    "softmax": (0.0, 1.0),
    "softplus": (0.0, _INF),
    "softsign": (-1.0, 1.0),
    "tanh": (-1.0, 1.0),
}
"""Smallest and largest output of activations, by name."""


def last_activations(step: StepView) -> dict[tuple[str, str], str]:
    """Return the activation of the last layer before each loss, by input of the loss and worker.

    Losses whose last layer is unknown are omitted.
    """
    signals, kinds = step.fact(Signals), step.fact(LayerKinds)
    if not kinds.are_known:
        return {}
    latest: dict[tuple[int, str], str] = {}
    rows = zip(signals.places, signals.rows.workers, signals.fingerprints, strict=True)
    for place, worker, fingerprint in rows:  # in call order
        known = kinds.of(place.module, worker).activation if place.kind == "output" else ""
        if known and place.number == 0:
            latest[fingerprint, worker] = known
    found = {}
    rows = zip(signals.places, signals.rows.workers, signals.fingerprints, strict=True)
    for at, (place, worker, fingerprint) in enumerate(rows):
        is_of_loss = place.kind == "input" and place.module.endswith(_OF_LOSS)
        if is_of_loss and (fingerprint, worker) in latest:
            found[signals.rows.names[at], worker] = latest[fingerprint, worker]
    return found
