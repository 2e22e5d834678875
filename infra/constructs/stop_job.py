"""Stops the training job in which a rule found issues."""

from __future__ import annotations

import aws_cdk as cdk
from constructs import Construct

from infra.config import StepwatchConfig
from infra.constructs.event_function import EventFunction
from infra.constructs.function import FunctionSettings, FunctionSource
from infra.constructs.status_bus import STATUS_BUS, allow_status_events
from infra.nag import acknowledge
from lambdas.contracts import environment
from lambdas.contracts.events import STOP_OVERDUE_DETAIL_TYPE, issues_found_pattern
from lambdas.contracts.stopping import NEVER, OBSERVE, OPT_IN

__all__ = ["StopJob"]

SETTINGS = FunctionSettings(
    handler="lambdas.stop_job.handler.lambda_handler",
    timeout_s=60,
    memory_mb=256,
    description="Stops training jobs in which a rule found issues",
)
CONFIRMATION_DUE = {"detail-type": "Stop Confirmation Due"}

OWN_FILES = {
    "*/stop.json": "The stop signal is",
    "*/job.json": "The file with a job's requests is",
    "*/training_job_end.ts": "The end marker is",
}


class StopJob(Construct):
    """The function for findings, native ones and Stepwatch's.

    A person must check the jobs of events that it could not handle.
    """

    def __init__(self, scope: Construct, id_: str, *, source: FunctionSource) -> None:
        """Create the function, its event rules and its failure queue."""
        super().__init__(scope, id_)
        stop = self.handler = EventFunction(
            self,
            "StopTrainingJob",
            source=source,
            settings=SETTINGS,
            environment=_environment(source.config),
        )
        self._allow_state(stop)
        self._allow_reading_jobs(stop, source.config)
        if source.config.stop_policy != OBSERVE:
            self._allow_stopping(stop, source.config)
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

    def _allow_state(self, stop: EventFunction) -> None:
        for keys, what in OWN_FILES.items():
            stop.watched.allow_objects(
                stop,
                ["s3:GetObject"],
                keys,
                reason=f"{what} beside the tensors of a job, whose name is not known at "
                f"deployment; only objects called {keys[2:]} can be read.",
            )
        stop.watched.allow_listing(stop)
        stop.watched.allow_items(stop, ["dynamodb:GetItem", "dynamodb:Query"])
        stop.watched.allow_items(
            stop, ["dynamodb:PutItem", "dynamodb:UpdateItem"], partitions=["stop#*"]
        )
        stop.watched.allow_active_index(stop)
        allow_status_events(stop, STOP_OVERDUE_DETAIL_TYPE)

    def _allow_reading_jobs(self, stop: EventFunction, config: StepwatchConfig) -> None:
        """Allow reading descriptions and tags of the jobs of each platform."""
        stop.allow(
            ["sagemaker:DescribeTrainingJob", "sagemaker:ListTags"],
            [self._accept_any("sagemaker", "training-job", stop)],
        )
        if "batch" in config.stop_platforms:
            stop.allow(["batch:DescribeJobs"], ["*"])
            acknowledge(
                stop,
                "IAM5[Resource::*]",
                reason="AWS Batch has no resources for the action that describes jobs; it reads.",
            )
        if "ecs" in config.stop_platforms:
            stop.allow(["ecs:DescribeTasks"], [self._accept_any("ecs", "task", stop)])

    def _allow_stopping(self, stop: EventFunction, config: StepwatchConfig) -> None:
        """Allow stopping only the jobs that the stop policy names."""
        stop.allow(
            ["s3:PutObject"], [b.arn_for_objects("*/stop.json") for b in stop.watched.buckets]
        )
        tag = f"aws:ResourceTag/{config.stop_tag}"
        consent = {"StringLike": {tag: [f"s3://{name}/*" for name in stop.watched.bucket_names()]}}
        no_refusal = {"StringNotEquals": {tag: NEVER}}
        stop.allow(
            ["sagemaker:StopTrainingJob"],
            [self._arn("sagemaker", "training-job")],
            conditions=consent if config.stop_policy == OPT_IN else no_refusal,
        )
        # On these platforms only the tag connects a root to a job, under every policy.
        if "batch" in config.stop_platforms:
            jobs = self._accept_any("batch", "job", stop)
            stop.allow(["batch:TerminateJob"], [jobs], conditions=consent)
        if "ecs" in config.stop_platforms:
            stop.allow(["ecs:StopTask"], [self._arn("ecs", "task")], conditions=consent)

    def _accept_any(self, service: str, resource: str, stop: EventFunction) -> str:
        """Return the ARN of any job of a platform, accepted by cdk-nag."""
        acknowledge(
            stop,
            f"IAM5[Resource::arn:<AWS::Partition>:{service}:<AWS::Region>:<AWS::AccountId>:"
            f"{resource}/*]",
            reason=f"A {resource} is created after the deployment, so its name is not known here; "
            "any may be described, and a condition on its tag says which may be stopped.",
        )
        return self._arn(service, resource)

    def _arn(self, service: str, resource: str) -> str:
        return cdk.Stack.of(self).format_arn(service=service, resource=resource, resource_name="*")


def _environment(config: StepwatchConfig) -> dict[str, str]:
    return {
        environment.EVENT_BUS_NAME: STATUS_BUS,
        environment.STOP_POLICY: config.stop_policy,
        environment.STOP_RULES: ",".join(config.stop_rules),
        environment.STOP_SEVERITY: config.stop_severity,
        environment.STOP_OBSERVED_RULES: ",".join(config.stop_observed_rules),
        environment.STOP_MIN_RULES: str(config.stop_min_rules),
        environment.STOP_CONFIRM_S: str(config.stop_confirm_s),
        environment.STOP_PLATFORMS: ",".join(config.stop_platforms),
        environment.STOP_TAG: config.stop_tag,
        environment.DEPLOYED_RULES: ",".join(
            rule.name for rule in config.rules if config.per_job_rules
        ),
    }
