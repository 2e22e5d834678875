"""The collections that every hook accepts by name, and the names of their tensors."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from hook_layer.errors import misspelled

__all__ = [
    "KNOWN_COLLECTIONS",
    "LOGGED",
    "LOGGED_STEP",
    "LOSS_MATCHES",
    "MINIMISED",
    "NOT_FINITE",
    "OF_LOGGED",
    "SCALAR",
    "STANDARD_LOSS",
    "meant_collection",
]

LOGGED: Final = "logged"
"""Collection of the scalars that a script logs or saves."""
SCALAR: Final = "scalar/"
"""Prefix of their names."""
LOGGED_STEP: Final = "logged_step/"
"""Prefix of the script's own step of each logged scalar."""
OF_LOGGED: Final = (SCALAR, LOGGED_STEP)
"""Prefixes of names that a script chooses: they may contain those of layers or weights."""

STANDARD_LOSS: Final = "Loss_standard/"
"""Prefix of usual losses of what an unknown loss compares, such as `Loss_standard/MSELoss`."""
LOSS_MATCHES: Final = "Loss_matches/"
"""Prefix of the saved steps in a row at which it equals a usual loss: `Loss_matches/MSELoss`."""
MINIMISED: Final = "Loss_minimised/"
"""Prefix of the sum that a loss is a term of, such as `Loss_minimised/MSELoss_0`."""
NOT_FINITE: Final = "Loss_not_finite/"
"""Prefix of the number of the operation of an unknown loss whose `value` or `gradient` was the
first that is not finite, or -1: `Loss_not_finite/value_0`."""

# Tensors of XGBoost's hook contain feature names, and SHAP values take long to compute.
_OF_MODELS: Final = "^(?!gradient|feature_importance|hyperparameters|average_shap|full_shap|trees/)"
KNOWN_COLLECTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "weights": (
            f"{_OF_MODELS}.*"
            "(weight(?!s/)|(kernel|embeddings|gamma):0$)"  # Keras has biases below `weights/`, too
        ),
        "biases": f"{_OF_MODELS}.*bias(:0)?$",
        "gradients": "^gradient",
        "first_steps": "^gradient|[Ll]oss",
        "optimizer_variables": "^optimizer_variables/",
        "optimizer_steps": "^optimizer_steps/",
        "loss_inputs": "[Ll]oss_input_[0-9]+$",
        "inputs": r"^([A-Z]\w*_input_[0-9]+|inputs(_[0-9]+)?)$",
        "outputs": r"^([A-Z]\w*_output_[0-9]+|(labels|predictions)(_[0-9]+)?)$",
        "layers": r"^[^/]+(_(input|output)_[0-9]+|/(inputs|outputs)(_[0-9]+)?)$",
        "input_values": r"^([A-Z]\w*_input_[0-9]+|input_values)$",
        "model_inputs": "_input_[0-9]+$",
        "module_io": r"(_(input|output)_[0-9]+|/(inputs|outputs)(_[0-9]+)?)$",
        "keras_inputs": r"^(inputs(_[0-9]+)?|labels_[0-9]+)$",
        "layer_inputs": "(^|/)inputs(_[0-9]+)?$",
        **{
            f"{layer}_{side}": f".*{layer}_{side}"
            for layer in ("relu", "sigmoid", "tanh")
            for side in ("input", "output")
        },
        "input_image": ".*hybridsequential0_input_0",
        "input_sequence": ".*embedding0_input_0",
        LOGGED: f"^{SCALAR}",
        "metrics": f"^{SCALAR}",
        "feature_importance": "^feature_importance/",
        "average_shap": "^average_shap/",
        "full_shap": "^full_shap/",
        "hyperparameters": "^hyperparameters/",
        "labels": "^labels$",
        "predictions": "^predictions$",
        "training_data": "^training_data/",
        "trees": "^trees/",
    }
)
"""The regular expression of each collection that Stepwatch's rules and hooks use.

A framework's own definition of a collection takes precedence. A model may lack tensors of a
collection.
"""

_OF_EVERY_HOOK: Final = frozenset({"all", "default", "losses"})


@lru_cache(maxsize=256)
def meant_collection(name: str) -> str | None:
    """Return the collection that a name very likely misspells; None if it is a name of its own."""
    return misspelled(name, _OF_EVERY_HOOK | KNOWN_COLLECTIONS.keys())
