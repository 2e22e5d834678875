"""What is asked of hooks and evaluators, under the names of the SageMaker SDK.

    from rule_runtime.configuration import CollectionConfig, DebuggerHookConfig, Rule, rule_configs

    rules = [Rule.sagemaker(rule_configs.vanishing_gradient())]
    hook_config = DebuggerHookConfig(collection_configs=[CollectionConfig("losses")])

What a name needs is imported when it is first asked for: evaluators import parts of this package,
and their start is imports.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

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

_HOMES: Final = {
    "SMS": "actions",
    "ActionList": "actions",
    "ApiLimitError": "api_limits",
    "CollectionConfig": "collection_config",
    "DebugConfiguration": "debug_configuration",
    "DebuggerHookConfig": "hook_config",
    "Email": "actions",
    "Rule": "debug_rule",
    "StopTraining": "actions",
    "TensorBoardOutputConfig": "hook_config",
    "check_limits": "api_limits",
}
_OF_THE_PROFILER: Final = frozenset({"FrameworkProfile", "ProfilerConfig", "ProfilerRule"})


def __getattr__(name: str) -> Any:
    if name == "rule_configs":
        return importlib.import_module(f"{__name__}.rule_configs")
    if name in _OF_THE_PROFILER:
        raise ImportError(f"{name}: there is no profiler here; leave its rules and settings out")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_HOMES[name]}")
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
