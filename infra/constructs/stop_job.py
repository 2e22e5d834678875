"""Stops the training job in which a rule found issues."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_events as events
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.config import StepwatchConfig
from infra.constructs.event_function import EventFunction
from infra.constructs.function import FunctionSettings, FunctionSource
from infra.constructs.rule_evaluation import STATUS_BUS
from infra.constructs.watched_state import WatchedState
from infra.nag import acknowledge
from lambdas.contracts import environment
from lambdas.contracts.events import STATUS_SOURCE, issues_found_pattern

__all__ = ["StopJob"]

SETTINGS = FunctionSettings(
    handler="lambdas.stop_job.handler.lambda_handler",
    timeout_s=60,
    memory_mb=256,
    description="Stops training jobs in which a rule found issues",
)
CONFIRMATION_DUE = {"detail-type": "Stop Confirmation Due"}

OWN_FILES = {
    "*/stop.json": "The stop signal lies",
    "*/job.json": "What a job asks for lies",
    "*/training_job_end.ts": "The mark of a job's end lies",
}


class StopJob(Construct):
    """The function that findings lead to, native ones and ours.

    Attributes:
        function: The function.
        failures: Events that could not be handled: jobs that somebody must look at.
    """

    def __init__(
        self, scope: Construct, id_: str, *, source: FunctionSource, watched: WatchedState
    ) -> None:
        """Create the function, its event rules and the queue of its failures.

        Args:
            scope: Parent construct.
            id_: Id of this construct.
            source: Code of the functions.
            watched: Buckets and table.
        """
        super().__init__(scope, id_)
        stop = EventFunction(
            self,
            "StopTrainingJob",
            source=source,
            settings=SETTINGS,
            environment=_environment(source.config, watched),
        )
        self._allow_state(stop, watched)
        self._allow_training_jobs(stop)
        if "batch" in source.config.stop_platforms:
            self._allow_batch(stop, source.config.stop_tag)
        if "ecs" in source.config.stop_platforms:
            self._allow_ecs(stop, source.config.stop_tag)
        stop.on_event(
            "IssuesFound",
            issues_found_pattern(),
            description="A rule found issues in a training job that still runs: stop it",
        )
        stop.each_minute(
            "EachMinute",
            CONFIRMATION_DUE,
            description="See whether the jobs that were asked to stop have ended",
        )
        self.function: lambda_.Function = stop.function
        self.failures: sqs.Queue = stop.failures

    def _allow_state(self, stop: EventFunction, watched: WatchedState) -> None:
        for keys, what in OWN_FILES.items():
            watched.allow_objects(
                stop,
                ["s3:GetObject"],
                keys,
                reason=f"{what} beside the tensors of a job, whose name is not known at "
                f"deployment; only objects called {keys[2:]} are meant.",
            )
        stop.allow(["s3:PutObject"], [b.arn_for_objects("*/stop.json") for b in watched.buckets])
        watched.allow_listing(stop)
        watched.allow_items(stop, ["dynamodb:GetItem", "dynamodb:Query"])
        watched.allow_items(
            stop, ["dynamodb:PutItem", "dynamodb:UpdateItem"], partitions=["stop#*"]
        )
        watched.allow_active_index(stop)
        bus = events.EventBus.from_event_bus_name(self, "StatusBus", STATUS_BUS)
        stop.allow(
            ["events:PutEvents"],
            [bus.event_bus_arn],
            conditions={"StringEquals": {"events:source": STATUS_SOURCE}},
        )

    def _allow_training_jobs(self, stop: EventFunction) -> None:
        jobs = self._arn("sagemaker", "training-job")
        stop.allow(["sagemaker:DescribeTrainingJob", "sagemaker:StopTrainingJob"], [jobs])
        acknowledge(
            stop,
            "IAM5[Resource::arn:<AWS::Partition>:sagemaker:<AWS::Region>:<AWS::AccountId>:"
            "training-job/*]",
            reason="Any training job of the account may be watched, and jobs are created after "
            "the deployment; they can be described and stopped, and nothing else.",
        )

    def _allow_batch(self, stop: EventFunction, tag: str) -> None:
        stop.allow(["batch:DescribeJobs"], ["*"])
        stop.allow(["batch:TerminateJob"], [self._arn("batch", "job")], conditions=_with_tag(tag))
        acknowledge(
            stop,
            "IAM5[Resource::*]",
            reason="AWS Batch knows no resources for the action that describes jobs; it reads.",
        )
        acknowledge(
            stop,
            "IAM5[Resource::arn:<AWS::Partition>:batch:<AWS::Region>:<AWS::AccountId>:job/*]",
            reason="Ids of jobs are not known at deployment; only those that carry the tag which "
            "their owner set for this purpose can be ended.",
        )

    def _allow_ecs(self, stop: EventFunction, tag: str) -> None:
        tasks = self._arn("ecs", "task")
        stop.allow(["ecs:DescribeTasks"], [tasks])
        stop.allow(["ecs:StopTask"], [tasks], conditions=_with_tag(tag))
        acknowledge(
            stop,
            "IAM5[Resource::arn:<AWS::Partition>:ecs:<AWS::Region>:<AWS::AccountId>:task/*]",
            reason="Ids of tasks are not known at deployment; only those that carry the tag which "
            "their owner set for this purpose can be stopped.",
        )

    def _arn(self, service: str, resource: str) -> str:
        return cdk.Stack.of(self).format_arn(service=service, resource=resource, resource_name="*")


def _with_tag(tag: str) -> dict[str, dict[str, object]]:
    return {"Null": {f"aws:ResourceTag/{tag}": "false"}}


def _environment(config: StepwatchConfig, watched: WatchedState) -> dict[str, str]:
    return {
        **watched.environment(),
        environment.EVENT_BUS_NAME: STATUS_BUS,
        environment.STOP_POLICY: config.stop_policy,
        environment.STOP_RULES: ",".join(config.stop_rules),
        environment.STOP_OBSERVED_RULES: ",".join(config.stop_observed_rules),
        environment.STOP_MIN_RULES: str(config.stop_min_rules),
        environment.STOP_ANY_NATIVE_JOB: str(config.stop_any_native_job).lower(),
        environment.STOP_CONFIRM_S: str(config.stop_confirm_s),
        environment.STOP_PLATFORMS: ",".join(config.stop_platforms),
        environment.STOP_TAG: config.stop_tag,
        environment.DEPLOYED_RULES: ",".join(
            rule.name for rule in config.rules if config.per_job_rules
        ),
    }
