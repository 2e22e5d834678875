"""The part of Stepwatch that runs inside the training process.

`from hook_layer.pytorch import Hook` is the way in; this package itself imports no framework.
"""

from __future__ import annotations

__all__: list[str] = []
