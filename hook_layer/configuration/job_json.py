"""Parses the job's part of the configuration JSON: name, output and rules."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from hook_layer.configuration.configuration_file import ConfigurationFile
from hook_layer.configuration.job import JobConfiguration, OutputPaths
from hook_layer.configuration.json_values import as_flag, as_object, as_text, known_keys, refuse
from hook_layer.configuration.places import output_paths
from hook_layer.errors import HookConfigurationError, close_match

__all__ = ["parse_job"]

logger = logging.getLogger("stepwatch")

_DEBUG_HOOK: Final = "DebugHookConfig"
_TENSORBOARD: Final = "TensorBoardOutputConfig"
_CHECKPOINT: Final = "CheckpointConfig"
_RULES: Final = "DebugRuleConfigurations"
_RULE_NAME: Final = "RuleConfigurationName"
_ACTIONS: Final = "Actions"
_HOOK_KEYS: Final = (
    "S3OutputPath",
    "S3Path",
    "LocalPath",
    "HookParameters",
    "CollectionConfigurations",
)
_KEYS: Final = (
    *_HOOK_KEYS,
    _DEBUG_HOOK,
    _TENSORBOARD,
    _CHECKPOINT,
    _RULES,
    _ACTIONS,
    "OptOutOfStop",
    "TrainingJobName",
)
_OF_THE_PLATFORM: Final = frozenset(
    (
        "AlgorithmSpecification",
        "EnableInterContainerTrafficEncryption",
        "EnableManagedSpotTraining",
        "EnableNetworkIsolation",
        "Environment",
        "ExperimentConfig",
        "HyperParameters",
        "InfraCheckConfig",
        "InputDataConfig",
        "MlflowConfig",
        "ModelPackageConfig",
        "OutputDataConfig",
        "ProfilerConfig",
        "ProfilerRuleConfigurations",
        "RemoteDebugConfig",
        "ResourceConfig",
        "RetryStrategy",
        "RoleArn",
        "ServerlessJobConfig",
        "SessionChainingConfig",
        "StoppingCondition",
        "Tags",
        "VpcConfig",
    )
)
"""Other members of CreateTrainingJob, which allow users to pass a complete request."""


def parse_job(file: ConfigurationFile) -> tuple[Mapping[str, Any], JobConfiguration]:
    """Split a configuration file into the hook's part and the job's part.

    Returns:
        The hook's part, which is `DebugHookConfig` or the top level, and the job's part.

    Raises:
        HookConfigurationError: A key is unknown, or a value is invalid.
    """
    top = _top(file)
    hook: Mapping[str, Any] = {key: top[key] for key in _HOOK_KEYS if key in top}
    if _DEBUG_HOOK in top:
        if hook:
            raise HookConfigurationError(
                f"{next(iter(hook))} is outside of {_DEBUG_HOOK}; move it into {_DEBUG_HOOK}"
            )
        hook = known_keys(f"{_DEBUG_HOOK}.", as_object(_DEBUG_HOOK, top[_DEBUG_HOOK]), _HOOK_KEYS)
    rules = top.get(_RULES)
    job = JobConfiguration(
        source=file.name,
        writes_to_s3=file.is_own,
        training_job_name=_name(top.get("TrainingJobName")),
        debug_output=output_paths("", hook, "S3OutputPath", "S3Path"),
        tensorboard_output=_paths(top, _TENSORBOARD, "S3OutputPath"),
        checkpoint=_paths(top, _CHECKPOINT, "S3Uri"),
        debug_rule_configurations=None if rules is None else _named(_RULES, rules, _RULE_NAME),
        actions=_named(_ACTIONS, top.get(_ACTIONS) or [], "name"),
        opt_out_of_stop=as_flag("OptOutOfStop", top.get("OptOutOfStop", False)),
    )
    return hook, job


def _top(file: ConfigurationFile) -> dict[str, Any]:
    """Return the known top-level members that are not null.

    Stepwatch's own file must have no other members. The platform may add members to its file, but
    likely typing errors are rejected in both.
    """
    for key, value in file.document.items():
        if key in _KEYS or key in _OF_THE_PLATFORM:
            continue
        if file.is_own or close_match(key, _KEYS):
            known_keys("", {key: value}, _KEYS)
        logger.warning("%s: %.80r is unknown and has no effect", file.name, key)
    members = file.document
    return {key: members[key] for key in _KEYS if members.get(key) is not None}


def _paths(top: Mapping[str, Any], name: str, s3_key: str) -> OutputPaths | None:
    if name not in top:
        return None
    members = known_keys(f"{name}.", as_object(name, top[name]), (s3_key, "LocalPath"))
    return output_paths(f"{name}.", members, s3_key)


def _name(value: object) -> str | None:
    if value is None:
        return None
    name = as_text("TrainingJobName", value)
    if "/" in name or "\\" in name or name in (".", ".."):
        refuse("TrainingJobName", value, "must be a name, not a path")
    return name


def _named(path: str, value: object, name_key: str) -> tuple[dict[str, Any], ...]:
    """Return a list of JSON objects that all have a name."""
    if not isinstance(value, list):
        refuse(path, value, "must be a list of JSON objects")
    for i, item in enumerate(value):
        members = as_object(f"{path}[{i}]", item)
        as_text(f"{path}[{i}].{name_key}", members.get(name_key))
    return tuple(dict(item) for item in value)
