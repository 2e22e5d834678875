"""Stops the training job in which a rule found issues."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.config import StepwatchConfig
from infra.constructs.function import (
    FunctionSettings,
    FunctionSource,
    StepwatchFunction,
    dead_letters,
)
from infra.constructs.rule_evaluation import WatchedState
from infra.nag import acknowledge
from lambdas.contracts import environment
from lambdas.contracts.events import issues_found_pattern

__all__ = ["StopJob"]

SETTINGS = FunctionSettings(
    handler="lambdas.stop_job.handler.lambda_handler",
    timeout_s=30,
    memory_mb=256,
    description="Stops training jobs in which a rule found issues",
)
MAXIMUM_RETRIES = 2
MAXIMUM_EVENT_AGE_S = 3600  # a job that went wrong an hour ago has ended or is seen by a person


class StopJob(Construct):
    """The function that findings lead to, native ones and ours.

    Attributes:
        function: The function.
        failures: Events that EventBridge could not deliver, and records of the invocations that
            failed after all retries: jobs that somebody must look at.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        config: StepwatchConfig,
        source: FunctionSource,
        watched: WatchedState,
    ) -> None:
        """Create the function, its event rule and the queue of its failures.

        Args:
            scope: Parent construct.
            id_: Id of this construct.
            config: Settings of the deployment.
            source: Code of the functions.
            watched: Bucket and table.
        """
        super().__init__(scope, id_)
        self.failures = dead_letters(self, "Failures")
        self._stop = StepwatchFunction(
            self,
            "StopTrainingJob",
            source=source,
            settings=SETTINGS,
            environment={
                environment.STATE_TABLE_NAME: watched.table.table_name,
                environment.TENSOR_BUCKET_NAMES: watched.bucket.bucket_name,
                environment.STOP_POLICY: config.stop_policy,
                environment.STOP_RULES: ",".join(config.stop_rules),
                environment.STOP_ANY_NATIVE_JOB: str(config.stop_any_native_job).lower(),
            },
        )
        self.function = self._stop.function
        self._allow(watched)
        self._retry()
        self._subscribe()

    def _allow(self, watched: WatchedState) -> None:
        job_arn = cdk.Stack.of(self).format_arn(
            service="sagemaker", resource="training-job", resource_name="*"
        )
        self._stop.allow(["sagemaker:StopTrainingJob"], [job_arn])
        self._stop.allow(
            ["s3:GetObject", "s3:PutObject"], [watched.bucket.arn_for_objects("*/stop.json")]
        )
        self._stop.allow(["dynamodb:GetItem", "dynamodb:Query"], [watched.table.table_arn])
        self._stop.allow(["sqs:SendMessage"], [self.failures.queue_arn])
        acknowledge(
            self._stop,
            "IAM5[Resource::arn:<AWS::Partition>:sagemaker:<AWS::Region>:<AWS::AccountId>:"
            "training-job/*]",
            reason="Any training job of the account may be watched, and jobs are created after "
            "the deployment; the one action allowed on them is to stop them.",
        )
        bucket = watched.bucket.node.default_child
        if isinstance(bucket, cdk.CfnElement):
            bucket_id = cdk.Stack.of(self).get_logical_id(bucket)
            acknowledge(
                self._stop,
                f"IAM5[Resource::<{bucket_id}.Arn>/*/stop.json]",
                reason="The stop signal lies beside the tensors of a job, whose name is not known "
                "at deployment; only objects called stop.json can be read and written.",
            )

    def _retry(self) -> None:
        acknowledge(
            self.failures,
            "SQS3",
            reason="This queue is the end of the line: the target of EventBridge's dead letters "
            "and the on-failure destination of the function, neither of which cdk-nag sees.",
        )
        lambda_.CfnEventInvokeConfig(
            self,
            "Retries",
            function_name=self.function.function_name,
            qualifier="$LATEST",
            maximum_retry_attempts=MAXIMUM_RETRIES,
            maximum_event_age_in_seconds=MAXIMUM_EVENT_AGE_S,
            destination_config=lambda_.CfnEventInvokeConfig.DestinationConfigProperty(
                on_failure=lambda_.CfnEventInvokeConfig.OnFailureProperty(
                    destination=self.failures.queue_arn
                )
            ),
        )

    def _subscribe(self) -> None:
        pattern = issues_found_pattern()
        events.Rule(
            self,
            "IssuesFound",
            description="A rule found issues in a training job that still runs: stop it",
            event_pattern=events.EventPattern(
                source=pattern["source"],
                detail_type=pattern["detail-type"],
                detail=pattern["detail"],
            ),
            targets=[targets.LambdaFunction(self.function, dead_letter_queue=self.failures)],
        )
