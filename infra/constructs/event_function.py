"""A function that events or a schedule call directly, without a queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.constructs.canary import ALIAS
from infra.constructs.function import (
    FunctionSettings,
    FunctionSource,
    StepwatchFunction,
    dead_letters,
)
from infra.nag import acknowledge

__all__ = ["EventFunction"]

MAXIMUM_RETRIES = 2
MAXIMUM_EVENT_AGE_S = 3600  # after an hour, a faulty job has ended or a person has noticed it


class EventFunction(StepwatchFunction):
    """A function with a queue for events that it, or EventBridge, could not handle.

    Attributes:
        called: The alias that events call; the function itself without one.
        failures: Events that EventBridge could not deliver, and records of invocations that failed
            after all retries.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        source: FunctionSource,
        settings: FunctionSettings,
        environment: Mapping[str, str],
    ) -> None:
        """Create the function and its failure queue."""
        super().__init__(scope, id_, source=source, settings=settings, environment=environment)
        self.failures = dead_letters(self, "Failures", source.encryption, enforce_ssl=True)
        statement = source.trust.queue_statement(self.failures.queue_arn)
        self.failures.add_to_resource_policy(statement)
        acknowledge(
            self.failures,
            "SQS3",
            reason="This queue is the end of the line: the target of EventBridge's dead letters "
            "and the on-failure destination of the function. cdk-nag sees neither.",
        )
        self.allow(["sqs:SendMessage"], [self.failures.queue_arn])
        self.called: lambda_.IFunction = self.function
        if source.canary is not None:
            self.called = source.canary.alias_of(self, self.function)
        retries = lambda_.CfnEventInvokeConfig(
            self,
            "Retries",
            function_name=self.function.function_name,
            qualifier="$LATEST" if self.called is self.function else ALIAS,
            maximum_retry_attempts=MAXIMUM_RETRIES,
            maximum_event_age_in_seconds=MAXIMUM_EVENT_AGE_S,
            destination_config=lambda_.CfnEventInvokeConfig.DestinationConfigProperty(
                on_failure=lambda_.CfnEventInvokeConfig.OnFailureProperty(
                    destination=self.failures.queue_arn
                )
            ),
        )
        if self.called is not self.function:
            retries.node.add_dependency(self.called)  # the qualifier is no reference to it

    def on_event(self, id_: str, pattern: Mapping[str, Any], *, description: str) -> None:
        """Call the function with each event that matches a pattern."""
        events.Rule(
            self,
            id_,
            description=description,
            event_pattern=events.EventPattern(
                source=pattern["source"],
                detail_type=pattern["detail-type"],
                detail=pattern.get("detail"),
            ),
            targets=self._targets(),
        )

    def each_minute(self, id_: str, event: Mapping[str, Any], *, description: str) -> None:
        """Call the function each minute with the same event."""
        events.Rule(
            self,
            id_,
            description=description,
            schedule=events.Schedule.rate(cdk.Duration.minutes(1)),
            targets=self._targets(events.RuleTargetInput.from_object(dict(event))),
        )

    def _targets(self, event: events.RuleTargetInput | None = None) -> Sequence[events.IRuleTarget]:
        return [targets.LambdaFunction(self.called, event=event, dead_letter_queue=self.failures)]
