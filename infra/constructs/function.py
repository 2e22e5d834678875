"""Base of all functions of a deployment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.config import StepwatchConfig
from infra.constructs.canary import Canary
from infra.constructs.encryption import KEY_ACTIONS, TABLE_KEY_ACTIONS, Encryption
from infra.constructs.removal import removal_of
from infra.constructs.tensor_bus import TensorBus
from infra.constructs.trust import Trust, role_path
from infra.nag import acknowledge
from infra.packaging import PYTHON_VERSION, digest_folder
from lambdas.contracts.environment import ESTIMATES_COST, METRICS_NAMESPACE
from lambdas.contracts.metrics import namespace_of

if TYPE_CHECKING:
    from infra.constructs.watched_state import WatchedState

__all__ = ["FunctionSettings", "FunctionSource", "StepwatchFunction", "dead_letters"]

TRACE_ACTIONS = ("xray:PutTelemetryRecords", "xray:PutTraceSegments")
DEAD_LETTER_RETENTION_DAYS = 14  # the maximum of SQS


@dataclass(frozen=True)
class FunctionSettings:
    """Settings of one function.

    Attributes:
        handler: Dotted path of the handler.
        name: Name of its rule; empty for functions that belong to no rule.
        is_of_a_rule: Whether each rule has such a function. Its role holds the permissions, which
            saves a resource. Those of other functions may become too large for a role.
        wakes_itself: Whether the function sends messages to its own queue. Lambda would stop such a
            loop after sixteen of them.
    """

    handler: str
    timeout_s: int
    memory_mb: int
    description: str
    name: str = ""
    is_of_a_rule: bool = False
    wakes_itself: bool = False

    @property
    def log_name(self) -> str:
        """End of the log group's name: a rule's is never that of another function."""
        return f"rules/{self.name}" if self.name else self.handler.split(".")[1]


class FunctionSource(Construct):
    """Code, runtime settings and watched resources of all functions."""

    runtime = lambda_.Runtime.PYTHON_3_14

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        function_folder: Path,
        layer_folder: Path,
        config: StepwatchConfig,
        encryption: Encryption,
        watched: WatchedState,
    ) -> None:
        """Create the assets from prepared folders."""
        super().__init__(scope, id_)
        if self.runtime.name != f"python{PYTHON_VERSION}":
            raise ValueError(f"wheels are for Python {PYTHON_VERSION}, not {self.runtime.name}")
        arm64 = config.architecture == "arm64"
        self.architecture = lambda_.Architecture.ARM_64 if arm64 else lambda_.Architecture.X86_64
        self.config, self.encryption, self.watched = config, encryption, watched
        self.trust = Trust(config)
        self.canary = Canary(self, "Canary", config=config) if config.has_canary else None
        self.tensor_bus = (
            TensorBus(self, "TensorBus", config=config, buckets=watched.bucket_names())
            if config.event_bus == "own"
            else None
        )
        self.code = _asset(function_folder)
        self.layer = lambda_.LayerVersion(
            self,
            "Layer",
            code=_asset(layer_folder),
            compatible_runtimes=[self.runtime],
            compatible_architectures=[self.architecture],
            description="hook_layer, rule_runtime and their third-party packages",
        )


class StepwatchFunction(Construct):
    """A function with a log group, and a role that may write to it; `allow` adds permissions."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        source: FunctionSource,
        settings: FunctionSettings,
        environment: Mapping[str, str],
    ) -> None:
        """Create the function; `environment` uses names of `lambdas.contracts.environment`."""
        super().__init__(scope, id_)
        self.watched = source.watched
        self._inline = iam.PolicyDocument() if settings.is_of_a_rule else None
        self._role = iam.Role(
            self,
            "Role",
            path=role_path(source.config),
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            inline_policies={"Permissions": self._inline} if self._inline else None,
        )
        self.log_group = _log_group(self, source, settings.log_name)
        self.allow(["logs:CreateLogStream", "logs:PutLogEvents"], [self.log_group.log_group_arn])
        self._allow_key(source.encryption)
        self.function = lambda_.Function(
            self,
            "Function",
            runtime=source.runtime,
            architecture=source.architecture,
            code=source.code,
            layers=[source.layer],
            handler=settings.handler,
            role=self._role.without_policy_updates(),
            timeout=cdk.Duration.seconds(settings.timeout_s),
            memory_size=settings.memory_mb,
            log_group=self.log_group,
            environment={
                **source.watched.environment(),
                **environment,
                METRICS_NAMESPACE: namespace_of(source.config.stage),
                **({ESTIMATES_COST: "true"} if source.config.cost_alarm_usd_per_day else {}),
            },
            recursive_loop=lambda_.RecursiveLoop.ALLOW if settings.wakes_itself else None,
            tracing=lambda_.Tracing.ACTIVE if source.config.tracing else None,
            description=settings.description,
        )
        if source.config.tracing:
            self.allow(TRACE_ACTIONS, ["*"])
            acknowledge(
                self,
                "IAM5[Resource::*]",
                reason="X-Ray knows no resources for the actions that send traces.",
            )

    def allow(
        self,
        actions: Sequence[str],
        resources: Sequence[str],
        *,
        conditions: Mapping[str, Mapping[str, object]] | None = None,
    ) -> None:
        """Allow the function actions, each with its full name, on resources."""
        statement = iam.PolicyStatement(
            actions=list(actions), resources=list(resources), conditions=conditions
        )
        if self._inline is not None:
            self._inline.add_statements(statement)
        else:
            self._role.add_to_principal_policy(statement)

    def _allow_key(self, encryption: Encryption) -> None:
        """Allow the function to use the data key; for the table only through DynamoDB."""
        if encryption.data_key is None:
            return
        stack, key = cdk.Stack.of(self), encryption.data_key.key_arn
        dynamodb = f"dynamodb.{stack.region}.{stack.url_suffix}"
        self.allow(KEY_ACTIONS, [key])
        self.allow(
            TABLE_KEY_ACTIONS, [key], conditions={"StringEquals": {"kms:ViaService": dynamodb}}
        )


def dead_letters(
    scope: Construct, id_: str, encryption: Encryption, *, enforce_ssl: bool | None = None
) -> sqs.Queue:
    """Create a queue for messages that could not be handled."""
    return sqs.Queue(
        scope,
        id_,
        encryption=encryption.of_queues,
        encryption_master_key=encryption.data_key,
        enforce_ssl=enforce_ssl,
        retention_period=cdk.Duration.days(DEAD_LETTER_RETENTION_DAYS),
    )


def _log_group(scope: Construct, source: FunctionSource, name: str) -> logs.LogGroup:
    # A part of the stack's id, because groups of a deleted stack may still exist.
    stack_id = cdk.Fn.select(2, cdk.Fn.split("/", cdk.Aws.STACK_ID))
    unique = cdk.Fn.select(0, cdk.Fn.split("-", stack_id))
    log_group = logs.LogGroup(
        scope,
        "Logs",
        log_group_name=f"{source.config.log_group_prefix}{unique}/{name}",
        removal_policy=removal_of(source.config),
        encryption_key=source.encryption.data_key,
    )
    resource = log_group.node.default_child
    if not isinstance(resource, logs.CfnLogGroup):  # pragma: no cover - a change in CDK
        raise TypeError(f"the log group's resource is {resource!r}, not a CfnLogGroup")
    # The L2 accepts only an enumeration such as ONE_MONTH; the setting is a number of days.
    resource.retention_in_days = source.config.retention_days
    return log_group


def _asset(folder: Path) -> lambda_.AssetCode:
    return lambda_.Code.from_asset(
        str(folder),
        asset_hash=digest_folder(folder),
        asset_hash_type=cdk.AssetHashType.CUSTOM,
    )
