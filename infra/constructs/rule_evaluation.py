"""One configured rule: event rule -> queue (and its dead letters) -> evaluator."""

from __future__ import annotations

from dataclasses import dataclass

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.config import StepwatchConfig
from infra.constructs.function import (
    FunctionSettings,
    FunctionSource,
    StepwatchFunction,
    dead_letters,
)
from infra.nag import acknowledge
from infra.rule_settings import RuleConfiguration
from lambdas.contracts import environment
from lambdas.contracts.events import tensor_object_pattern

__all__ = ["RuleEvaluation", "WatchedState"]

HANDLER = "lambdas.evaluate_rule.handler.lambda_handler"
STATUS_BUS = "default"  # the only one that native events arrive on

MAX_RECEIVE_COUNT = 10  # several evaluators may lose the race for one state a few times
VISIBILITY_TIMEOUTS = 6  # of the function: room for the retries of a throttled evaluator


@dataclass(frozen=True)
class WatchedState:
    """What an evaluator reads and writes.

    Attributes:
        bucket: The tensor bucket.
        table: The table of evaluation states.
    """

    bucket: s3.IBucket
    table: dynamodb.ITable


class RuleEvaluation(Construct):
    """Evaluates one rule whenever a job has written tensors of a step.

    Attributes:
        queue: Events that wait for the evaluator.
        dead_letters: Events that failed ten times, or could not be put into the queue.
        evaluator: The function.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        rule: RuleConfiguration,
        config: StepwatchConfig,
        source: FunctionSource,
        watched: WatchedState,
    ) -> None:
        """Create the queue, the function and the event rule of one configured rule.

        Args:
            scope: Parent construct.
            id_: Id of this construct.
            rule: The configured rule.
            config: Settings of the deployment.
            source: Code of the functions.
            watched: Bucket and table.
        """
        super().__init__(scope, id_)
        self.dead_letters = dead_letters(self, "DeadLetters")
        self.queue = self._queue(config)
        self.evaluator = StepwatchFunction(
            self,
            "Evaluator",
            source=source,
            settings=FunctionSettings(
                handler=HANDLER,
                timeout_s=config.evaluator_timeout_s,
                memory_mb=config.evaluator_memory_mb,
                description=f"Evaluates the rule {rule.name} on the tensors of training jobs",
            ),
            environment=_environment(rule, watched),
        )
        self._allow(watched)
        self._consume(config)
        self._subscribe(rule, watched.bucket)

    def _queue(self, config: StepwatchConfig) -> sqs.Queue:
        visible_s = VISIBILITY_TIMEOUTS * config.evaluator_timeout_s + config.batching_window_s
        return sqs.Queue(
            self,
            "Queue",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            visibility_timeout=cdk.Duration.seconds(visible_s),
            dead_letter_queue=sqs.DeadLetterQueue(
                max_receive_count=MAX_RECEIVE_COUNT, queue=self.dead_letters
            ),
        )

    def _allow(self, watched: WatchedState) -> None:
        function = self.evaluator
        function.allow(["s3:GetObject"], [watched.bucket.arn_for_objects("*")])
        function.allow(["s3:ListBucket"], [watched.bucket.bucket_arn])
        function.allow(
            ["dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"],
            [watched.table.table_arn],
        )
        bus = events.EventBus.from_event_bus_name(self, "StatusBus", STATUS_BUS)
        function.allow(["events:PutEvents"], [bus.event_bus_arn])
        function.allow(
            ["sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage"],
            [self.queue.queue_arn],
        )
        bucket_id = cdk.Stack.of(self).get_logical_id(_resource(watched.bucket))
        acknowledge(
            function,
            f"IAM5[Resource::<{bucket_id}.Arn>/*]",
            reason="An evaluator reads the tensors of every training job that writes to this "
            "bucket; the jobs' names, and so the keys, are not known at deployment.",
        )

    def _consume(self, config: StepwatchConfig) -> None:
        lambda_.EventSourceMapping(
            self,
            "Source",
            target=self.evaluator.function,
            event_source_arn=self.queue.queue_arn,
            batch_size=config.batch_size,
            max_batching_window=cdk.Duration.seconds(config.batching_window_s),
            max_concurrency=config.maximum_concurrency,
            report_batch_item_failures=True,
        )

    def _subscribe(self, rule: RuleConfiguration, bucket: s3.IBucket) -> None:
        pattern = tensor_object_pattern([bucket.bucket_name])
        events.Rule(
            self,
            "Tensors",
            description=f"Tensors of a step were written: wake the evaluator of {rule.name}",
            event_pattern=events.EventPattern(
                source=pattern["source"],
                detail_type=pattern["detail-type"],
                detail=pattern["detail"],
            ),
            targets=[targets.SqsQueue(self.queue, dead_letter_queue=self.dead_letters)],
        )


def _environment(rule: RuleConfiguration, watched: WatchedState) -> dict[str, str]:
    return {
        environment.RULE_CONFIGURATION_NAME: rule.name,
        environment.RULE_PARAMETERS: rule.environment_value(),
        environment.STATE_TABLE_NAME: watched.table.table_name,
        environment.TENSOR_BUCKET_NAMES: watched.bucket.bucket_name,
        environment.EVENT_BUS_NAME: STATUS_BUS,
    }


def _resource(bucket: s3.IBucket) -> cdk.CfnElement:
    resource = bucket.node.default_child
    if not isinstance(resource, cdk.CfnElement):
        raise TypeError(f"{bucket.node.path} is not a bucket of this stack")
    return resource
