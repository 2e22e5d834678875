"""Configures what a job saves and which rules evaluate it, with the names of the SageMaker SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hook_layer.lazy_names import lazy_names

__all__ = [
    "SMS",
    "ActionList",
    "ApiLimitError",
    "CollectionConfig",
    "DebugConfiguration",
    "DebuggerHookConfig",
    "Email",
    "Rule",
    "StopTraining",
    "TensorBoardOutputConfig",
    "check_limits",
    "rule_configs",
]

if TYPE_CHECKING:
    from rule_runtime.configuration import (
        SMS,
        ActionList,
        ApiLimitError,
        CollectionConfig,
        DebugConfiguration,
        DebuggerHookConfig,
        Email,
        Rule,
        StopTraining,
        TensorBoardOutputConfig,
        check_limits,
        rule_configs,
    )
else:
    __getattr__, __dir__ = lazy_names(
        __name__, dict.fromkeys(__all__, "rule_runtime.configuration")
    )
