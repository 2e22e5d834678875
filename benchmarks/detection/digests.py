"""Digests of code: cached runs and verdicts belong to the code that made them."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Final

import hook_layer
import rule_runtime

__all__ = ["digest_of", "digest_of_hook", "digest_of_shared_code"]

_SHARED: Final = ("detectors", "engine", "facts", "numerics", "trial")
"""Folders that rules import, besides their own modules."""


@lru_cache
def digest_of_shared_code() -> str:
    """Return the digest of the code that all rules share."""
    folder = Path(rule_runtime.__file__).parent
    return digest_of(*(folder / name for name in _SHARED))


@lru_cache
def digest_of_hook() -> str:
    """Return the digest of the code that saves tensors."""
    return digest_of(Path(hook_layer.__file__).parent)


def digest_of(*places: Path) -> str:
    """Return the digest of these files, and of all Python files in these folders."""
    digest = hashlib.sha256()
    for place in places:
        for file in [place] if place.is_file() else sorted(place.rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()
