"""The mean slope of the activations in recurrent layers of an untrained model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.facts.layers import MODULE_IO, Signals

if TYPE_CHECKING:
    from rule_runtime.trial.step_view import StepView, TensorRows

__all__ = ["OF_RECURRENT_LAYERS", "Slope", "least_slope"]

OF_RECURRENT_LAYERS: Final = (MODULE_IO, CollectionConfig("weights", {"save_interval": "500"}))
"""What the hook saves for a rule that looks at recurrent layers."""

_HIDDEN: Final = ".weight_hh"
_WEIGHTS: Final = r"^(?!gradient/).*\.weight_hh(_l[0-9]+)?(_reverse)?$"


class Slope(NamedTuple):
    """The smallest mean slope of an activation of a recurrent layer.

    Attributes:
        rows: Inputs and outputs of modules.
        at: Row of the layer's output.
        mean: Its mean slope, relative to the largest.
    """

    rows: TensorRows
    at: int
    mean: float


def least_slope(step: StepView) -> Slope | None:
    """Return the smallest mean slope of all recurrent layers; None without such layers.

    A tanh that returned h has the slope 1 - h^2. Outputs between -1 and 1 are taken for such: those
    of a GRU are, and those of an LSTM are smaller.

    Args:
        step: The first step of its mode.
    """
    signals = step.fact(Signals)
    rows, weights = signals.rows, step.tensors(regex=(_WEIGHTS,))
    low, high = rows.column("min"), rows.column("max")
    slopes = 1 - rows.column("mean") ** 2 - rows.column("std") ** 2
    owners = {name.rpartition(_HIDDEN)[0] for name in weights.names}
    found: list[tuple[float, str, int]] = []
    for at, place in enumerate(signals.places):
        is_recurrent = any(o == place.module or o.endswith(f"_{place.module}") for o in owners)
        if is_recurrent and place.kind == "output" and -1 <= low[at] <= high[at] <= 1:
            found.append((float(slopes[at]), rows.names[at], at))
    return Slope(rows, min(found)[2], min(found)[0]) if found else None
