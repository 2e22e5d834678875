"""Reads a deployment's outputs, log groups and custom rules.

It needs the permission `cloudformation:DescribeStacks` on the stack. Log groups and custom rules
need `lambda:GetFunctionConfiguration` on its functions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final
from urllib.parse import urljoin

from rule_runtime.jobs.aws import Aws, AwsRequestError

__all__ = [
    "CUSTOM_RULES_GROUP",
    "DEFAULT_STAGE",
    "JOB_RULES_GROUP",
    "CustomRuleFiles",
    "Deployment",
    "DeploymentError",
    "resolve_names",
]

DEFAULT_STAGE: Final = "dev"
"""Default stage of a deployment."""

# infra and the functions share these names, from lambdas.contracts.
JOB_RULES_GROUP: Final = "#job-rules"
CUSTOM_RULES_GROUP: Final = "#custom-rules"
_LOG_GROUPS: Final = "STEPWATCH_RULE_LOG_GROUPS"
_CUSTOM_RULES: Final = "STEPWATCH_CUSTOM_RULES"
_CUSTOM_RULE_BUCKET: Final = "STEPWATCH_CUSTOM_RULE_BUCKET"
_NO_SUCH_STACK: Final = "ValidationError"
_NOTIFY_FUNCTION: Final = "NotifyFunctionName"
_JOB_RULES_FUNCTION: Final = "JobRulesFunctionName"
_GROUPED_RULES: Final = "STEPWATCH_GROUPED_RULES"


class DeploymentError(OSError):
    """The deployment does not exist, or lacks the requested data."""


@dataclass(frozen=True)
class CustomRuleFiles:
    """The custom rule files that a deployment runs.

    Attributes:
        bucket: Bucket of the files; empty if there are none.
        sha256_by_key: The pinned SHA-256 of each file, by its key.
    """

    bucket: str = ""
    sha256_by_key: Mapping[str, str] = field(default_factory=dict)

    def uri(self, key: str) -> str:
        """Return the URI of a file."""
        return f"s3://{self.bucket}/{key}"

    def runs(self, source: str) -> bool:
        """Return whether the deployment runs the file at a URI."""
        return source in map(self.uri, self.sha256_by_key)


class Deployment:
    """A deployed stack; requests are made on demand.

    Args:
        aws: The account and Region.
        stage: The deployment's `stepwatch:stage`.
    """

    def __init__(self, aws: Aws, stage: str = DEFAULT_STAGE) -> None:
        self._aws = aws
        self.stack_name = f"Stepwatch-{stage}"

    @cached_property
    def outputs(self) -> Mapping[str, str]:
        """Outputs of the stack.

        Raises:
            DeploymentError: The stack does not exist, or you may not describe it.
        """
        try:
            answer = self._aws.call("cloudformation", "describe_stacks", StackName=self.stack_name)
        except AwsRequestError as error:
            raise DeploymentError(
                f"the stack {self.stack_name} cannot be described in {self._aws.region}: deploy "
                f"it, or name the stage of another one by stage=..., or its Region ({error})"
            ) from error
        (stack,) = answer["Stacks"]
        return {out["OutputKey"]: out["OutputValue"] for out in stack.get("Outputs", ())}

    @cached_property
    def missing(self) -> str:
        """Why no deployment evaluates a job; empty if one may.

        Without the permission to describe the stack, one may.
        """
        try:
            _ = self.outputs
        except DeploymentError as error:
            cause = error.__cause__
            if isinstance(cause, AwsRequestError) and cause.code == _NO_SUCH_STACK:
                return f"no deployment evaluates it: {error}"
        return ""

    @cached_property
    def log_groups(self) -> Mapping[str, str]:
        """Names of the evaluators' log groups by the rules' configuration names, in order.

        Raises:
            DeploymentError: There is no deployment, or you may not describe its function.
        """
        return resolve_names(self._environment(_NOTIFY_FUNCTION).get(_LOG_GROUPS))

    @cached_property
    def rules(self) -> tuple[str, ...]:
        """Names of the deployed rules.

        Raises:
            DeploymentError: There is no deployment, or you may not describe its functions.
        """
        own = tuple(name for name in self.log_groups if not name.startswith("#"))
        if own or _JOB_RULES_FUNCTION not in self.outputs:
            return own
        return tuple(json.loads(self._environment(_JOB_RULES_FUNCTION).get(_GROUPED_RULES, "{}")))

    @cached_property
    def custom_rules(self) -> CustomRuleFiles:
        """The custom rule files that it runs.

        Raises:
            DeploymentError: There is no deployment, or you may not describe its function.
        """
        if _JOB_RULES_FUNCTION not in self.outputs:
            return CustomRuleFiles()
        variables = self._environment(_JOB_RULES_FUNCTION)
        return CustomRuleFiles(
            variables.get(_CUSTOM_RULE_BUCKET, ""), _texts(variables.get(_CUSTOM_RULES))
        )

    def _environment(self, output: str) -> Mapping[str, str]:
        """Return the environment of the function that an output names."""
        name = self.outputs.get(output)
        if name is None:
            raise DeploymentError(
                f"the stack {self.stack_name} has no output {output}: deploy this version"
            )
        try:
            answer = self._aws.call("lambda", "get_function_configuration", FunctionName=name)
        except AwsRequestError as error:
            raise DeploymentError(
                f"the function {name} of {self.stack_name} cannot be looked at: allow "
                f"lambda:GetFunctionConfiguration on it ({error})"
            ) from error
        variables: Mapping[str, str] = answer.get("Environment", {}).get("Variables", {})
        return variables


def resolve_names(text: str | None) -> dict[str, str]:
    """Return whole names by rule, from a list in the environment of a function.

    The functions resolve it by `lambdas.contracts.name_list`, which is not part of the installed
    package.
    """
    listed = _texts(text)
    rule, first = next(iter(listed.items()), ("", ""))
    beginning = first.removesuffix(rule)
    return {name: urljoin(first, end) if end else beginning + name for name, end in listed.items()}


def _texts(text: str | None) -> dict[str, str]:
    members: Any = json.loads(text) if text else {}
    return {str(key): str(value) for key, value in members.items()}
