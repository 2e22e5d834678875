"""Field numbers of the messages in event files: those of TensorFlow's `event.proto` and others."""

from __future__ import annotations

from typing import Final

__all__ = [
    "CONTENT",
    "DIMENSION",
    "DIMENSION_NAME",
    "DTYPE",
    "METADATA",
    "MODE_PLUGIN",
    "MODE_STEP_PLUGIN",
    "PLUGIN",
    "PLUGIN_CONTENT",
    "PLUGIN_NAME",
    "SHAPE",
    "SIZE",
    "STEP",
    "STRING",
    "SUMMARY",
    "TAG",
    "TENSOR",
    "VALUE",
    "WALL_TIME",
]

# Event
WALL_TIME: Final = 1
STEP: Final = 2
SUMMARY: Final = 5
# Summary
VALUE: Final = 1
# Summary.Value
TAG: Final = 1
TENSOR: Final = 8
METADATA: Final = 9
# SummaryMetadata and its entries
PLUGIN: Final = 1
PLUGIN_NAME: Final = 1
PLUGIN_CONTENT: Final = 2
# TensorProto
DTYPE: Final = 1
SHAPE: Final = 2
CONTENT: Final = 4
STRING: Final = 8
# TensorShapeProto and its dimensions
DIMENSION: Final = 2
SIZE: Final = 1
DIMENSION_NAME: Final = 2

MODE_PLUGIN: Final = "mode"
MODE_STEP_PLUGIN: Final = "mode_step"
