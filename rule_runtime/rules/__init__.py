"""The built-in rules: a file has its rule's name in snake_case, or holds a family of rules."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Final

__all__ = ["FAMILIES"]

FAMILIES: Final[Mapping[str, str]] = {
    "exploding_tensor": "non_finite",
    "gradient_norm_explosion": "curve_faults",
    "loss_diverging": "curve_faults",
    "loss_spike": "curve_faults",
    "oscillating_loss": "curve_faults",
    "overtraining": "overfit",
    "unchanged_tensor": "weight_update_ratio",
}
"""Names in snake_case of rules in the file of a family, with that file."""


class _Member(ModuleType):
    """A module for one rule of a family; it imports the family's file on first use."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__") and name != "__all__":
            raise AttributeError(name)
        stem = self.__name__.rpartition(".")[2]
        return getattr(import_module(f"{__name__}.{FAMILIES[stem]}"), name)


for _stem in FAMILIES:
    sys.modules[f"{__name__}.{_stem}"] = _Member(f"{__name__}.{_stem}")
