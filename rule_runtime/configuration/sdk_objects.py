"""Converts rules, hook configurations and TensorBoard output of the SageMaker SDK."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from rule_runtime.configuration.actions import as_actions
from rule_runtime.configuration.collection_config import as_collection
from rule_runtime.configuration.debug_rule import Rule
from rule_runtime.configuration.foreign_objects import plain, taken
from rule_runtime.configuration.hook_config import DebuggerHookConfig, TensorBoardOutputConfig

__all__ = ["as_hook_config", "as_rule", "as_tensorboard"]

logger = logging.getLogger("stepwatch")

_ACTIONS = "action_json"


def as_rule(rule: object) -> Rule:
    """Convert a rule of the SDK, or a member of `DebugRuleConfigurations`.

    Raises:
        TypeError: It is not a rule, or it is a profiler rule.
        ValueError: A value is known only while a pipeline runs.
    """
    if isinstance(rule, Rule):
        return rule
    if isinstance(rule, Mapping):
        return Rule.from_json(rule)
    if hasattr(rule, "to_debugger_rule_config_dict"):
        return _rule_of_sdk(rule)
    if hasattr(rule, "to_profiler_rule_config_dict"):
        raise TypeError(
            f"{rule!r} is a rule of the profiler, which Stepwatch does not have; remove it"
        )
    raise TypeError(f"{rule!r} is not a rule; make one with Rule.sagemaker or Rule.custom")


def as_hook_config(hook: object) -> DebuggerHookConfig:
    """Convert a hook configuration of the SDK, or a `DebugHookConfig`.

    Raises:
        TypeError: It is not a hook configuration.
        ValueError: A value is known only while a pipeline runs.
    """
    return taken(hook, DebuggerHookConfig, "collection_configs", "hook_parameters")


def as_tensorboard(config: object) -> TensorBoardOutputConfig:
    """Convert a TensorBoard output of the SDK, or a `TensorBoardOutputConfig`.

    Raises:
        TypeError: It is not a TensorBoard output.
        ValueError: A value is known only while a pipeline runs.
    """
    return taken(config, TensorBoardOutputConfig, "s3_output_path")


def _rule_of_sdk(rule: Any) -> Rule:
    configuration = plain(rule.to_debugger_rule_config_dict(), f"the rule {rule.name!r}")
    written = configuration.get("RuleParameters", {}).pop(_ACTIONS, None)
    if written is not None and rule.actions is None:
        logger.warning(
            "rule %s: the parameter %s=%s is ignored, as in the SDK; use actions= instead",
            rule.name,
            _ACTIONS,
            written,
        )
    found = Rule.from_json(configuration)
    return Rule(
        **{
            **vars(found),
            "collection_configs": tuple(map(as_collection, rule.collection_configs or ())),
            "actions": as_actions(rule.actions),
        }
    )
