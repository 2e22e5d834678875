"""The packs of rules that are compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rule_runtime.configuration.packs import PACKS
from rule_runtime.engine.rule import Rule

__all__ = ["SEPARATOR", "class_of", "packs"]

SEPARATOR: Final = "/"


def packs(only: Sequence[str] | None = None) -> dict[str, dict[str, Rule]]:
    """Return the rules of each pack, each under `pack/class`."""
    return {
        pack: {f"{pack}{SEPARATOR}{name}": rule for name, rule in content.rules().items()}
        for pack, content in PACKS.items()
        if pack in (only or PACKS)
    }


def class_of(key: str) -> str:
    """Return the name of the class of the rule under a key of `packs`."""
    return key.partition(SEPARATOR)[2]
