"""Configured rules of a training job: `Rule.sagemaker` and `Rule.custom`.

Differences from the SageMaker SDK: parameters may be numbers and booleans, a single action can
replace a list, and an object can return its JSON repeatedly. Collections and actions may be objects
of the SDK.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from rule_runtime.configuration.actions import Action, ActionList, as_actions
from rule_runtime.configuration.api_values import as_strings, checked_members, given
from rule_runtime.configuration.collection_config import CollectionConfig, as_collection

__all__ = ["DEFAULT_IMAGE", "Rule"]

DEFAULT_IMAGE: Final = "DEFAULT_RULE_EVALUATOR_IMAGE"
"""The SDK's image of a built-in rule before it knows the Region."""

_ACTIONS: Final = "action_json"
_INVOKED: Final = "rule_to_invoke"
_SOURCE: Final = "source_s3_uri"
_OPTIONAL: Final = (
    *("RuleEvaluatorImage", "LocalPath", "S3OutputPath"),
    *("InstanceType", "VolumeSizeInGB", "RuleParameters"),
)


@dataclass(frozen=True)
class Rule:
    """A configured rule: create it with `Rule.sagemaker` or `Rule.custom`.

    Attributes:
        name: Its `RuleConfigurationName`, unique in a job.
        image_uri: Image of the rule in the original; stored but not used.
        instance_type: Its instance; stored but not used.
        container_local_output_path: Folder in its container; stored but not used.
        s3_output_path: The original's path of the rule's output; stored but not used.
        volume_size_in_gb: Its volume, GB; stored but not used.
        rule_parameters: Its parameters, all strings.
        collection_configs: Collections that the hook saves for it.
        actions: Actions on a finding; None to leave them to the deployment.
    """

    name: str
    image_uri: str
    instance_type: str | None
    container_local_output_path: str | None
    s3_output_path: str | None
    volume_size_in_gb: int | None
    rule_parameters: Mapping[str, str]
    collection_configs: tuple[CollectionConfig, ...] = ()
    actions: Action | ActionList | None = None

    @classmethod
    def sagemaker(  # noqa: PLR0917 - the SDK's signature
        cls,
        base_config: Mapping[str, Any],
        name: str | None = None,
        container_local_output_path: str | None = None,
        s3_output_path: str | None = None,
        other_trials_s3_input_paths: Sequence[str] | None = None,
        rule_parameters: Mapping[str, object] | None = None,
        collections_to_save: Iterable[object] | None = None,
        actions: object = None,
    ) -> Rule:
        """Return a built-in rule.

        Args:
            base_config: Result of a function of `rule_configs`.
            name: Its `RuleConfigurationName`; by default, the rule's name.
            container_local_output_path: Stored but not used.
            s3_output_path: Stored but not used.
            other_trials_s3_input_paths: Trials for comparison in SimilarAcrossRuns.
            rule_parameters: Parameters that differ from the defaults.
            collections_to_save: Replacement for the collections of `base_config`.
            actions: Actions on a finding.

        Raises:
            ValueError: `base_config` is invalid, or `rule_to_invoke` or `action_json` is among the
                parameters.
            TypeError: `actions` is not an action.
        """
        configuration = _checked_base(base_config)
        own = _checked_parameters(rule_parameters)
        if own.get(_INVOKED):
            raise ValueError(
                f"rule_parameters has {_INVOKED}={own[_INVOKED]!r}, which base_config "
                "decides; remove it, or use Rule.custom for a rule of your own"
            )
        base = map(CollectionConfig.from_json, base_config.get("CollectionConfigurations") or ())
        return cls(
            name=name or configuration["RuleConfigurationName"],
            image_uri=DEFAULT_IMAGE,
            instance_type=None,
            container_local_output_path=container_local_output_path,
            s3_output_path=s3_output_path,
            volume_size_in_gb=None,
            rule_parameters={
                **_other_trials(other_trials_s3_input_paths),
                **as_strings(configuration.get("RuleParameters")),
                **own,
            },
            collection_configs=tuple(map(as_collection, collections_to_save or ())) or tuple(base),
            actions=as_actions(actions),
        )

    @classmethod
    def custom(  # noqa: PLR0917 - the SDK's signature
        cls,
        name: str,
        image_uri: str = DEFAULT_IMAGE,
        instance_type: str | None = None,
        volume_size_in_gb: int | None = None,
        source: str | None = None,
        rule_to_invoke: str | None = None,
        container_local_output_path: str | None = None,
        s3_output_path: str | None = None,
        other_trials_s3_input_paths: Sequence[str] | None = None,
        rule_parameters: Mapping[str, object] | None = None,
        collections_to_save: Iterable[object] | None = None,
        actions: object = None,
    ) -> Rule:
        """Return a custom rule.

        Args:
            name: Its `RuleConfigurationName`.
            image_uri: Stored but not used: rules run in the evaluators.
            instance_type: Stored but not used.
            volume_size_in_gb: Stored but not used.
            source: The Python file with the rule: a local path, or an S3 URI.
            rule_to_invoke: Name of the class in it.
            container_local_output_path: Stored but not used.
            s3_output_path: Stored but not used.
            other_trials_s3_input_paths: Trials for comparison.
            rule_parameters: Its parameters.
            collections_to_save: Collections that the hook saves for it.
            actions: Actions on a finding.

        Raises:
            ValueError: Only one of `source` and `rule_to_invoke` is given, or `action_json` is
                among the parameters.
            TypeError: `actions` is not an action.
        """
        if bool(source) != bool(rule_to_invoke):
            raise ValueError(
                f"source={source!r} and rule_to_invoke={rule_to_invoke!r} must be given "
                "together or not at all"
            )
        return cls(
            name=name,
            image_uri=image_uri,
            instance_type=instance_type,
            container_local_output_path=container_local_output_path,
            s3_output_path=s3_output_path,
            volume_size_in_gb=volume_size_in_gb,
            rule_parameters={
                **_other_trials(other_trials_s3_input_paths),
                **given(**{_SOURCE: source, _INVOKED: rule_to_invoke}),
                **_checked_parameters(rule_parameters),
            },
            collection_configs=tuple(map(as_collection, collections_to_save or ())),
            actions=as_actions(actions),
        )

    @property
    def has_actions(self) -> bool:
        """Whether it has its own actions, as objects or in a request's JSON."""
        return self.actions is not None or bool(self.rule_parameters.get(_ACTIONS))

    @property
    def source(self) -> str | None:
        """File of a custom rule: a path or an S3 URI; None for a built-in rule."""
        return self.rule_parameters.get(_SOURCE)

    @property
    def rule_to_invoke(self) -> str | None:
        """Name of the rule's class; None if only the image defines it."""
        return self.rule_parameters.get(_INVOKED)

    def with_source(self, uri: str) -> Rule:
        """Return the rule with another location of its file.

        Args:
            uri: An S3 URI.
        """
        return replace(self, rule_parameters={**self.rule_parameters, _SOURCE: uri})

    def to_json(self, training_job_name: str | None = None) -> dict[str, Any]:
        """Return the member of `DebugRuleConfigurations`; None and empty values are omitted.

        Args:
            training_job_name: Name of the job, the default prefix of StopTraining; None to omit
                actions.

        Raises:
            ValueError: The actions are longer than a parameter can be.
        """
        parameters = dict(self.rule_parameters)
        if training_job_name is not None and self.actions is not None:
            self.actions.update_training_job_prefix_if_not_specified(training_job_name)
            parameters[_ACTIONS] = self.actions.serialize()
        return {
            "RuleConfigurationName": self.name,
            "RuleEvaluatorImage": self.image_uri,
            **given(
                InstanceType=self.instance_type,
                VolumeSizeInGB=self.volume_size_in_gb,
                LocalPath=self.container_local_output_path,
                S3OutputPath=self.s3_output_path,
                RuleParameters=parameters,
            ),
        }

    @classmethod
    def from_json(cls, member: Mapping[str, Any]) -> Rule:
        """Return the rule from a member of `DebugRuleConfigurations`; actions stay a parameter.

        Args:
            member: The member of CreateTrainingJob or DescribeTrainingJob.

        Raises:
            ValueError: The name is missing, or a member is unknown.
        """
        checked_members("a rule", member, ("RuleConfigurationName",), _OPTIONAL)
        return cls(
            name=member["RuleConfigurationName"],
            image_uri=member.get("RuleEvaluatorImage", DEFAULT_IMAGE),
            instance_type=member.get("InstanceType"),
            container_local_output_path=member.get("LocalPath"),
            s3_output_path=member.get("S3OutputPath"),
            volume_size_in_gb=member.get("VolumeSizeInGB"),
            rule_parameters=as_strings(member.get("RuleParameters")),
        )


def _checked_base(base_config: Mapping[str, Any]) -> Mapping[str, Any]:
    configuration = (
        base_config.get("DebugRuleConfiguration") if isinstance(base_config, Mapping) else None
    )
    if not isinstance(configuration, Mapping) or "RuleConfigurationName" not in configuration:
        raise ValueError(
            f"base_config is {base_config!r}, but must be what a function of rule_configs returns, "
            "e.g. Rule.sagemaker(rule_configs.vanishing_gradient())"
        )
    return configuration


def _checked_parameters(parameters: Mapping[str, object] | None) -> dict[str, str]:
    strings = as_strings(parameters)
    if _ACTIONS in strings:
        raise ValueError(
            f"rule_parameters has {_ACTIONS}; use actions=StopTraining(), Email(...) or "
            "SMS(...) instead"
        )
    return strings


def _other_trials(paths: Sequence[str] | None) -> dict[str, str]:
    return {f"other_trial_{number}": path for number, path in enumerate(paths or ())}
