"""What stands for code: kept runs and verdicts are of that which made them."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Final

import hook_layer
import rule_runtime

__all__ = ["digest_of", "digest_of_hook", "digest_of_rules", "digest_of_shared_code"]

_SHARED: Final = ("detectors", "engine", "facts", "numerics", "trial")
"""Folders of what rules are made of beside their own modules."""


@lru_cache
def digest_of_rules() -> str:
    """Return what stands for the code of the rules and the packs."""
    folder = Path(rule_runtime.__file__).parent
    return digest_of(
        *(folder / name for name in (*_SHARED, "rules")), folder / "configuration" / "packs.py"
    )[:12]


@lru_cache
def digest_of_shared_code() -> str:
    """Return what stands for what all rules are made of."""
    folder = Path(rule_runtime.__file__).parent
    return digest_of(*(folder / name for name in _SHARED))


@lru_cache
def digest_of_hook() -> str:
    """Return what stands for the code that saves tensors."""
    return digest_of(Path(hook_layer.__file__).parent)


def digest_of(*places: Path) -> str:
    """Return what stands for the Python files of these files and folders.

    Args:
        places: Files, and folders with all that is below them.
    """
    digest = hashlib.sha256()
    for place in places:
        for file in [place] if place.is_file() else sorted(place.rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()
