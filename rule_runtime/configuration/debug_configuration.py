"""The debugging configuration of a training job: hook, rules and TensorBoard."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from rule_runtime.configuration.actions import as_actions
from rule_runtime.configuration.api_limits import check_limits
from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.configuration.debug_rule import Rule
from rule_runtime.configuration.hook_config import DebuggerHookConfig, TensorBoardOutputConfig
from rule_runtime.configuration.merging import merged, steps_of
from rule_runtime.configuration.sdk_objects import as_hook_config, as_rule, as_tensorboard

__all__ = ["DebugConfiguration"]

logger = logging.getLogger("stepwatch")

_HOOK_PARAMETERS: Final = "the hook's configuration"
_DEFAULT_STEPS: Final = {"save_interval": "500"}
"""Default save interval of a collection; the hook's `DEFAULT_SAVE_INTERVAL`."""


@dataclass(frozen=True)
class DebugConfiguration:
    """The debugging configuration of a training job.

    Attributes:
        hook: What the hook saves; None for no hook.
        rules: The rules, in configured order.
        tensorboard: Location of TensorBoard files; None for none.
    """

    hook: DebuggerHookConfig | None = None
    rules: tuple[Rule, ...] = ()
    tensorboard: TensorBoardOutputConfig | None = None

    @classmethod
    def of(
        cls,
        output_path: str,
        *,
        hook_config: object | Literal[False] = None,
        rules: Iterable[object] = (),
        actions: object = None,
        tensorboard: object = None,
    ) -> DebugConfiguration:
        """Return the configuration; the rules' collections are added to the hook's.

        You can pass objects of the SageMaker SDK and JSON of CreateTrainingJob.

        Args:
            output_path: S3 URI of the job's output, the default of all paths.
            hook_config: What the hook saves; None for its defaults and the needs of rules; False
                for no hook.
            rules: The rules.
            actions: Actions on findings of rules without actions of their own; rules with actions
                keep theirs, with a warning.
            tensorboard: Location of TensorBoard files; None for none.

        Raises:
            TypeError: An object has the wrong type.
            ValueError: Needs of rules conflict, two rules have the same name, or there are rules
                but no hook.
        """
        listed = _with_actions([as_rule(rule) for rule in rules], actions)
        _check_names(listed)
        if hook_config is False and listed:
            names = ", ".join(rule.name for rule in listed)
            raise ValueError(
                f"hook_config=False saves nothing, so the rules {names} have no data; "
                "remove the rules or hook_config=False"
            )
        board = None
        if tensorboard is not None:
            board = as_tensorboard(tensorboard)
            board = replace(board, s3_output_path=board.s3_output_path or output_path)
        return cls(_hook(hook_config, listed, output_path), listed, board)

    def to_json(self, training_job_name: str) -> dict[str, Any]:
        """Return the members of CreateTrainingJob without a check of their limits.

        A configuration file of the hook and `job.json` have the same members and no limits.

        Raises:
            ValueError: The actions of a rule are longer than a parameter can be.
        """
        members: dict[str, Any] = {}
        if self.hook is not None:
            members["DebugHookConfig"] = self.hook.to_json()
        if self.rules:
            members["DebugRuleConfigurations"] = [
                rule.to_json(training_job_name) for rule in self.rules
            ]
        if self.tensorboard is not None:
            members["TensorBoardOutputConfig"] = self.tensorboard.to_json()
        return members

    def to_request(self, training_job_name: str) -> dict[str, Any]:
        """Return the members of a CreateTrainingJob request within the API's limits.

        Raises:
            ApiLimitError: The API would refuse them; lists all wrong fields.
            ValueError: The actions of a rule are longer than a parameter can be.
        """
        request = self.to_json(training_job_name)
        check_limits(request)
        return request

    @classmethod
    def from_request(cls, request: Mapping[str, Any]) -> DebugConfiguration:
        """Return the configuration from a request, or from the response of DescribeTrainingJob.

        Args:
            request: The request; members unrelated to debugging are ignored.

        Raises:
            ApiLimitError: The API would not accept it.
        """
        check_limits(request)
        hook, board = request.get("DebugHookConfig"), request.get("TensorBoardOutputConfig")
        return cls(
            None if hook is None else DebuggerHookConfig.from_json(hook),
            tuple(map(Rule.from_json, request.get("DebugRuleConfigurations") or ())),
            None if board is None else TensorBoardOutputConfig.from_json(board),
        )


def _with_actions(rules: Sequence[Rule], actions: object) -> tuple[Rule, ...]:
    """Return the rules; those without actions get the job's actions."""
    default = as_actions(actions)
    own = [rule.name for rule in rules if rule.has_actions]
    if default is not None and own:
        logger.warning(
            "the job's actions, %s, do not apply to %s, which have actions of their own; "
            "list every action there",
            default,
            ", ".join(own),
        )
    return tuple(rule if rule.has_actions else replace(rule, actions=default) for rule in rules)


def _check_names(rules: Sequence[Rule]) -> None:
    names = [rule.name for rule in rules]
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            raise ValueError(
                f"{names.count(name)} rules are called {name!r}; give them different names "
                "with Rule.sagemaker(..., name=...)"
            )


def _hook(
    hook_config: object | Literal[False], rules: Sequence[Rule], output_path: str
) -> DebuggerHookConfig | None:
    if hook_config is False:
        return None
    hook = DebuggerHookConfig() if hook_config is None else as_hook_config(hook_config)
    asked = [(_HOOK_PARAMETERS, each) for each in hook.collection_configs or ()]
    asked += [(rule.name, each) for rule in rules for each in rule.collection_configs]
    is_silent = hook.collection_configs is None and not asked
    return DebuggerHookConfig(
        hook.s3_output_path or output_path,
        hook.container_local_output_path,
        hook.hook_parameters,
        None if is_silent else _joined(asked, steps_of(hook.hook_parameters or {})),
    )


def _joined(
    asked: Sequence[tuple[str, CollectionConfig]], default_steps: Mapping[str, str]
) -> list[CollectionConfig]:
    """Return each collection once, in the order of first use.

    Args:
        asked: Pairs of a source and its collection.
        default_steps: Save steps from the hook's own parameters.
    """
    by_name: dict[str, dict[CollectionConfig, list[str]]] = {}
    for who, collection in asked:
        by_name.setdefault(collection.name, {}).setdefault(collection, []).append(who)
    return [_one(name, askers, default_steps) for name, askers in by_name.items()]


def _one(
    name: str, askers: Mapping[CollectionConfig, Sequence[str]], default_steps: Mapping[str, str]
) -> CollectionConfig:
    if len(askers) == 1:
        return next(iter(askers))
    text = "; ".join(
        f"{', '.join(dict.fromkeys(who))}: {_shown(each)}" for each, who in askers.items()
    )
    if any(steps_of(each.parameters) for each in askers):
        asked = [_with_defaults(each, default_steps) for each in askers]
    else:
        asked = list(askers)
    try:
        (joined,) = merged(asked)
    except ValueError as error:
        raise ValueError(f"{error} ({text})") from None
    logger.warning(
        "collection %s is requested in several ways (%s); it is saved with %s",
        name,
        text,
        _shown(joined),
    )
    return joined


def _with_defaults(
    collection: CollectionConfig, default_steps: Mapping[str, str]
) -> CollectionConfig:
    """Return a collection with the hook's save steps if it has none.

    A source without steps means the hook's steps, and must not get fewer because of other sources.
    As in the hook, a collection's parameter for all modes has priority over the hook's parameter
    for one mode.
    """
    said, steps = collection.parameters, {**_DEFAULT_STEPS, **default_steps}
    unsaid = {key: value for key, value in steps.items() if key.rpartition(".")[2] not in said}
    return CollectionConfig(collection.name, {**unsaid, **said})


def _shown(collection: CollectionConfig) -> str:
    parameters = (f"{key}={value}" for key, value in collection.parameters.items())
    return ", ".join(parameters) or "the defaults"
