"""Objects of the SageMaker SDK, taken wherever ours are.

They are known by what they can do, not by their class: the SDK moved its classes from
`sagemaker.debugger` (2.x) to `sagemaker.core.debugger` (3.x), and need not be installed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from rule_runtime.configuration.actions import (
    SMS,
    Action,
    ActionList,
    Email,
    StopTraining,
    is_valid_action_object,
)
from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.configuration.debug_rule import Rule
from rule_runtime.configuration.hook_config import DebuggerHookConfig, TensorBoardOutputConfig

__all__ = ["as_actions", "as_collection", "as_hook_config", "as_rule", "as_tensorboard"]

_Config = TypeVar("_Config", CollectionConfig, DebuggerHookConfig, TensorBoardOutputConfig)


def as_rule(rule: object) -> Rule:
    """Return a rule as ours: ours, the SDK's, or a member of `DebugRuleConfigurations`.

    Args:
        rule: The rule.

    Raises:
        TypeError: It is no rule, or one of the profiler's.
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
            f"{rule!r} is a rule of the profiler, and there are none here: leave it out"
        )
    raise TypeError(f"{rule!r} is no rule: make one by Rule.sagemaker or Rule.custom")


def as_hook_config(hook: object) -> DebuggerHookConfig:
    """Return what the hook saves as ours: ours, the SDK's, or a `DebugHookConfig`.

    Args:
        hook: The configuration.

    Raises:
        TypeError: It is none.
        ValueError: A value is known only while a pipeline runs.
    """
    return _taken(hook, DebuggerHookConfig, "collection_configs", "hook_parameters")


def as_tensorboard(config: object) -> TensorBoardOutputConfig:
    """Return TensorBoard's output as ours: ours, the SDK's, or a `TensorBoardOutputConfig`.

    Args:
        config: The configuration.

    Raises:
        TypeError: It is none.
        ValueError: A value is known only while a pipeline runs.
    """
    return _taken(config, TensorBoardOutputConfig, "s3_output_path")


def as_collection(collection: object) -> CollectionConfig:
    """Return a collection as ours: ours, the SDK's, or a member of `CollectionConfigurations`.

    Args:
        collection: The collection.

    Raises:
        TypeError: It is none.
        ValueError: A value is known only while a pipeline runs.
    """
    return _taken(collection, CollectionConfig, "parameters")


def as_actions(actions: object) -> Action | ActionList | None:
    """Return actions as ours: ours, those of `smdebug_rulesconfig`, or None.

    Args:
        actions: An action or a list of them.

    Raises:
        TypeError: It is no action.
        ValueError: An action has a parameter that ours does not take.
    """
    if actions is None or is_valid_action_object(actions):
        return actions  # type: ignore[return-value]  # told by the function above
    if isinstance(actions, Iterable) and not isinstance(actions, (str, bytes)):
        return ActionList(*(_action(each) for each in actions))
    if hasattr(actions, "actions"):
        return ActionList(*(_action(each) for each in actions.actions))
    return _action(actions)


def _action(action: Any) -> Action:
    if isinstance(action, Action):
        return action
    parameters = getattr(action, "action_parameters", None)
    if not isinstance(parameters, Mapping):
        raise TypeError(f"{action!r} is no action: give StopTraining, Email or SMS")
    name = parameters.get("name")
    if name == "stoptraining":
        is_default = getattr(action, "use_default_training_job_prefix", False)
        return StopTraining(None if is_default else parameters.get("training_job_prefix"))
    if name not in ("email", "sms"):
        raise TypeError(f"{action!r} is no action: give StopTraining, Email or SMS")
    return (Email if name == "email" else SMS)(parameters.get("endpoint", ""))


def _rule_of_sdk(rule: Any) -> Rule:
    configuration = _plain(rule.to_debugger_rule_config_dict(), f"the rule {rule.name!r}")
    configuration.get("RuleParameters", {}).pop("action_json", None)  # the actions say it
    found = Rule.from_json(configuration)
    return Rule(
        **{
            **vars(found),
            "collection_configs": tuple(map(as_collection, rule.collection_configs or ())),
            "actions": as_actions(rule.actions),
        }
    )


def _taken(config: Any, kind: type[_Config], *attributes: str) -> _Config:
    """Return a configuration as ours; the SDK's is known by its attributes."""
    if isinstance(config, kind):
        return config
    if isinstance(config, Mapping):
        return kind.from_json(config)
    if not all(hasattr(config, name) for name in attributes):
        raise TypeError(f"{config!r} is no {kind.__name__}")
    # It is private in the SDK, and the one way in which the SDK itself gets the JSON.
    request = config._to_request_dict()  # noqa: SLF001
    return kind.from_json(_plain(request, kind.__name__))


def _plain(request: Any, what: str) -> dict[str, Any]:
    """Return a copy of plain JSON; variables of a pipeline have no value yet."""
    try:
        copy: dict[str, Any] = json.loads(json.dumps(request))
    except TypeError as error:
        raise ValueError(
            f"{what} has a value that is not known before the job starts ({error}): give the "
            "value itself in place of a pipeline variable"
        ) from error
    return copy
