"""All that a training job is asked about debugging: the hook's part, the rules, TensorBoard."""

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
"""When the hook saves a collection of which nothing says it; as its `DEFAULT_SAVE_INTERVAL`."""


@dataclass(frozen=True)
class DebugConfiguration:
    """What a training job is asked about debugging.

    Attributes:
        hook: What the hook saves; None to have none.
        rules: The rules, in the order in which they are told.
        tensorboard: Where TensorBoard's files go; None to have none.
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
        """Return the configuration with what rules ask of the hook in the hook's part.

        Objects of the SageMaker SDK and JSON of CreateTrainingJob are taken wherever ours are.

        Args:
            output_path: S3 URI of a job's output, for what says none of its own.
            hook_config: What the hook saves; None for its defaults and what rules ask for; False
                for no hook at all.
            rules: The rules.
            actions: What is done on a finding of a rule that has no actions of its own; those that
                have some keep them, with a warning.
            tensorboard: Where TensorBoard's files go; None for no such files.

        Raises:
            TypeError: An object is nothing of the kind.
            ValueError: Rules ask for what cannot be had together, two have one name, or there are
                rules and no hook.
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
        """Return the members of CreateTrainingJob, without their limits being checked.

        A configuration file of the hook and `job.json` have the same members and no limits.

        Raises:
            ValueError: The actions of a rule are longer than a parameter may be.
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
        """Return the members of a CreateTrainingJob request that the API takes.

        Raises:
            ApiLimitError: The API would refuse them; all fields that are wrong are named.
            ValueError: The actions of a rule are longer than a parameter may be.
        """
        request = self.to_json(training_job_name)
        check_limits(request)
        return request

    @classmethod
    def from_request(cls, request: Mapping[str, Any]) -> DebugConfiguration:
        """Return what a request, or the answer of DescribeTrainingJob, says about debugging.

        Args:
            request: The request; other members than those of debugging are not looked at.

        Raises:
            ApiLimitError: It is nothing that the API would take.
        """
        check_limits(request)
        hook, board = request.get("DebugHookConfig"), request.get("TensorBoardOutputConfig")
        return cls(
            None if hook is None else DebuggerHookConfig.from_json(hook),
            tuple(map(Rule.from_json, request.get("DebugRuleConfigurations") or ())),
            None if board is None else TensorBoardOutputConfig.from_json(board),
        )


def _with_actions(rules: Sequence[Rule], actions: object) -> tuple[Rule, ...]:
    """Return the rules with the job's actions where they have none of their own."""
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
    """Return each collection once, in the order in which they are first asked for.

    Args:
        asked: Who asks for which collection.
        default_steps: What the hook's own parameters say of when collections are saved.
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
    """Return a collection with the steps that the hook saves where it does not say them.

    Who does not say when means these, and is to get no fewer because others say it. As in the hook
    a collection's parameter for all modes counts before the hook's for one.
    """
    said, steps = collection.parameters, {**_DEFAULT_STEPS, **default_steps}
    unsaid = {key: value for key, value in steps.items() if key.rpartition(".")[2] not in said}
    return CollectionConfig(collection.name, {**unsaid, **said})


def _shown(collection: CollectionConfig) -> str:
    parameters = (f"{key}={value}" for key, value in collection.parameters.items())
    return ", ".join(parameters) or "the defaults"
