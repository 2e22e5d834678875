"""Tensors of a PyTorch run under the names that the hook for Keras would give them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from rule_runtime.testing.rule_contract import RuleContract, Tensors, healthy_tensors

__all__ = ["COLLECTIONS", "KerasContract", "as_keras", "keras_name"]

COLLECTIONS: Final = {
    "weights": (r"^[^/]+/weights/(?!.*bias)",),
    "biases": (r"^[^/]+/weights/.*bias",),
    "gradients": ("^gradients?/",),
}
"""Regular expressions of the collections, as of the hook for Keras."""

_PARAMETER: Final = re.compile(r"(?P<gradient>gradient/)?Net_(?P<layer>\w+)\.(?P<kind>weight|bias)")
_KINDS: Final = {"weight": "kernel", "bias": "bias"}


def keras_name(name: str) -> str:
    """Return what a tensor is called in Keras: `Net_fc.weight` is `fc/weights/fc/kernel:0`."""
    found = _PARAMETER.fullmatch(name)
    if found is None:
        return name
    tail = f"{found['layer']}/{_KINDS[found['kind']]}"
    return f"gradients/{tail}Grad" if found["gradient"] else f"{found['layer']}/weights/{tail}:0"


def as_keras(tensors: Tensors) -> dict[str, Any]:
    """Return the tensors of a step under their names in Keras."""
    return {keras_name(name): value for name, value in tensors.items()}


class KerasContract(RuleContract):
    """The contract of a rule with the names of Keras."""

    def make_tensors(self, step: int, worker: int) -> Tensors:
        return as_keras(healthy_tensors(step, worker))

    def make_frozen(self) -> Tensors:
        return as_keras(super().make_frozen())

    def make_collections(self) -> Mapping[str, tuple[str, ...]]:
        return COLLECTIONS
