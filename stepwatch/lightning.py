"""The callback for Lightning; needs the extra `lightning`.

These are `stepwatch.lightning.StepwatchCallback`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepwatch.default_hooks import hook_names

__all__ = [
    "StepwatchCallback",
    "TrainingStoppedError",
]

if TYPE_CHECKING:
    from hook_layer.lightning import (
        StepwatchCallback,
        TrainingStoppedError,
    )
else:
    __getattr__, __dir__ = hook_names(__name__, dict.fromkeys(__all__, "hook_layer.lightning"))
