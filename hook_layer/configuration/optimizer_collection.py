"""Separates optimizer variables from weights and biases with similar names."""

from __future__ import annotations

from typing import Final

from hook_layer.configuration.collection_manager import CollectionManager
from hook_layer.configuration.collections import CollectionKeys

__all__ = ["keep_apart"]

_NAME: Final = CollectionKeys.OPTIMIZER_VARIABLES
_WITHOUT_GRADIENTS: Final = "^(?!gradient)"
_WITHOUT_BOTH: Final = f"^(?!gradient|{_NAME}/)"


def keep_apart(manager: CollectionManager) -> None:
    """Exclude optimizer variables from `weights` and `biases` if their collection is requested."""
    if _NAME not in manager.include and _NAME not in manager.collections:
        return
    for name in (CollectionKeys.WEIGHTS, CollectionKeys.BIASES):
        patterns = manager.get(name).include_regex
        for i, pattern in enumerate(patterns):
            if pattern.startswith(_WITHOUT_GRADIENTS):
                patterns[i] = pattern.replace(_WITHOUT_GRADIENTS, _WITHOUT_BOTH, 1)
