"""Configures hooks and rules with the names of the SageMaker SDK.

    from rule_runtime.configuration import CollectionConfig, DebuggerHookConfig, Rule, rule_configs

    rules = [Rule.sagemaker(rule_configs.vanishing_gradient())]
    hook_config = DebuggerHookConfig(collection_configs=[CollectionConfig("losses")])

Names are imported lazily, because evaluators import parts of this package and must start fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hook_layer.lazy_names import lazy_names

if TYPE_CHECKING:
    from rule_runtime.configuration import rule_configs
    from rule_runtime.configuration.actions import SMS, ActionList, Email, StopTraining
    from rule_runtime.configuration.api_limits import ApiLimitError, check_limits
    from rule_runtime.configuration.collection_config import CollectionConfig
    from rule_runtime.configuration.debug_configuration import DebugConfiguration
    from rule_runtime.configuration.debug_rule import Rule
    from rule_runtime.configuration.hook_config import DebuggerHookConfig, TensorBoardOutputConfig

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

_OF_THE_PROFILER: Final = frozenset({"FrameworkProfile", "ProfilerConfig", "ProfilerRule"})

_get_lazy, __dir__ = lazy_names(
    __name__,
    {
        "SMS": f"{__name__}.actions",
        "ActionList": f"{__name__}.actions",
        "ApiLimitError": f"{__name__}.api_limits",
        "CollectionConfig": f"{__name__}.collection_config",
        "DebugConfiguration": f"{__name__}.debug_configuration",
        "DebuggerHookConfig": f"{__name__}.hook_config",
        "Email": f"{__name__}.actions",
        "Rule": f"{__name__}.debug_rule",
        "StopTraining": f"{__name__}.actions",
        "TensorBoardOutputConfig": f"{__name__}.hook_config",
        "check_limits": f"{__name__}.api_limits",
        "rule_configs": f"{__name__}.rule_configs:",
    },
)


def __getattr__(name: str) -> Any:
    if name in _OF_THE_PROFILER:
        raise ImportError(
            f"Stepwatch has no profiler, so {name} does not exist; remove profiler rules "
            "and settings"
        )
    return _get_lazy(name)
