"""Re-evaluates idle runs once a minute."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.constructs.function import FunctionSettings, FunctionSource, StepwatchFunction
from infra.constructs.rule_evaluation import RuleQueues
from lambdas.contracts import environment

__all__ = ["Sweep"]

# Shorter than the interval and without retries, so at most one sweep runs at a time. Reserved
# concurrency would do the same, but is not available in accounts with a quota of ten.
SETTINGS = FunctionSettings(
    handler="lambdas.sweep.handler.lambda_handler",
    timeout_s=55,
    memory_mb=256,
    description="Wakes evaluations that receive no events",
)


class Sweep(Construct):
    """A schedule and the function that wakes evaluators."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        source: FunctionSource,
        queues: RuleQueues,
    ) -> None:
        """Create the function and its schedule."""
        super().__init__(scope, id_)
        sweep = StepwatchFunction(
            self,
            "Sweeper",
            source=source,
            settings=SETTINGS,
            environment={
                environment.RULE_QUEUE_URLS: queues.urls(),
                environment.MAX_SILENCE_S: str(source.config.max_silence_s),
            },
        )
        self.function = sweep.function
        source.watched.allow_active_index(sweep)
        source.watched.allow_items(sweep, ["dynamodb:GetItem"])
        queues.allow_sending(sweep)
        self._schedule()

    def _schedule(self) -> None:
        lambda_.CfnEventInvokeConfig(
            self,
            "Retries",
            function_name=self.function.function_name,
            qualifier="$LATEST",
            maximum_retry_attempts=0,
            maximum_event_age_in_seconds=60,
        )
        events.Rule(
            self,
            "EachMinute",
            description="Wake evaluations that receive no events",
            schedule=events.Schedule.rate(cdk.Duration.minutes(1)),
            targets=[targets.LambdaFunction(self.function)],
        )
