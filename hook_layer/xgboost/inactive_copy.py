"""What a copy of a hook is: `sklearn.clone`, `pickle` and Dask copy the callbacks of a model."""

from __future__ import annotations

import logging
from typing import Any

from xgboost.callback import TrainingCallback

__all__ = ["InactiveCopy"]

logger = logging.getLogger("stepwatch")


class InactiveCopy(TrainingCallback):
    """A callback that does nothing, for two hooks must not write to one trial."""

    def before_training(self, model: Any) -> Any:
        """Log that nothing is saved; called by XGBoost."""
        logger.warning(
            "nothing of this training is saved: its callback is a copy of a hook, made by clone, "
            "pickle or another process; make the hook where the training runs"
        )
        return model
