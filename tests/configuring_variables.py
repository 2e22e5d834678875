"""Environment variables that configure hooks; no test gets them from the machine."""

from __future__ import annotations

from typing import Final

__all__ = ["CONFIGURING_VARIABLES"]

CONFIGURING_VARIABLES: Final = (
    "CHECKPOINT_CONFIG_FILE_PATH",
    "SMDEBUG_CONFIG_FILE_PATH",
    "STEPWATCH_CONFIG",
    "TENSORBOARD_CONFIG_FILE_PATH",
    "TRAINING_JOB_ARN",
    "TRAINING_JOB_NAME",
    "USE_SMDEBUG",
)
