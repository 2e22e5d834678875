"""What a copy of a hook is to XGBoost."""

from __future__ import annotations

from typing import Any

from xgboost.callback import TrainingCallback

from hook_layer.inactive_copy import InactiveCopy

__all__ = ["InactiveCopyCallback"]


class InactiveCopyCallback(InactiveCopy, TrainingCallback):
    """A copy of a hook that may be a callback."""

    def before_training(self, model: Any) -> Any:
        """Log that nothing is saved; called by XGBoost."""
        self._do_nothing()
        return model
