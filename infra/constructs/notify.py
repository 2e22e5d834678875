"""Sends messages about findings and alarms."""

from __future__ import annotations

from collections.abc import Mapping

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra.config import StepwatchConfig
from infra.constructs.encryption import KEY_ACTIONS, Encryption
from infra.constructs.event_function import EventFunction
from infra.constructs.function import FunctionSettings, FunctionSource
from infra.constructs.rule_evaluation import RuleEvaluation, list_names
from infra.constructs.trust import Trust
from lambdas.contracts import environment
from lambdas.contracts.events import notable_statuses_pattern, stop_overdue_pattern

__all__ = ["AlertTopic", "Notify"]

SETTINGS = FunctionSettings(
    handler="lambdas.notify.handler.lambda_handler",
    timeout_s=30,
    memory_mb=256,
    description="Notifies people of what rules found",
)


class AlertTopic(Construct):
    """The topic of all messages."""

    def __init__(
        self, scope: Construct, id_: str, *, encryption: Encryption, config: StepwatchConfig
    ) -> None:
        """Create the topic and its subscriptions."""
        super().__init__(scope, id_)
        self.topic = sns.Topic(
            self,
            "Topic",
            display_name="Stepwatch",
            master_key=encryption.key,
            enforce_ssl=True,
        )
        self.topic.add_to_resource_policy(
            iam.PolicyStatement(
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                actions=["sns:Publish"],
                resources=[self.topic.topic_arn],
                conditions={"StringEquals": {"aws:SourceAccount": cdk.Stack.of(self).account}},
            )
        )
        Trust(config).protect_topic(self.topic)
        for number, email in enumerate(config.alert_emails):
            sns.Subscription(
                self,
                f"Email{number}",
                topic=self.topic,
                endpoint=email,
                protocol=sns.SubscriptionProtocol.EMAIL,
            )


class Notify(Construct):
    """The function that sends the messages about jobs."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        source: FunctionSource,
        topic: sns.ITopic,
        evaluations: Mapping[str, RuleEvaluation],
    ) -> None:
        """Create the function and its event rules."""
        super().__init__(scope, id_)
        statuses = list(source.config.notify_statuses)
        notify = self.handler = EventFunction(
            self,
            "Notifier",
            source=source,
            settings=SETTINGS,
            environment={
                environment.TOPIC_ARN: topic.topic_arn,
                environment.NOTIFY_STATUSES: ",".join(statuses),
                environment.NOTIFY_NOT_JUDGED: str(source.config.notify_not_judged).lower(),
                environment.RULE_LOG_GROUPS: _log_groups(evaluations),
            },
        )
        self._allow(notify, source, topic)
        self._subscribe(notify, statuses)

    @staticmethod
    def _subscribe(notify: EventFunction, statuses: list[str]) -> None:
        notify.on_event(
            "FinalStatus",
            notable_statuses_pattern(statuses),
            description="The evaluation of a rule reached a status that people are notified of",
        )
        notify.on_event(
            "StopOverdue",
            stop_overdue_pattern(),
            description="A job that was asked to stop has not ended in time",
        )

    @staticmethod
    def _allow(notify: EventFunction, source: FunctionSource, topic: sns.ITopic) -> None:
        source.watched.allow_items(notify, ["dynamodb:GetItem"])
        source.watched.allow_items(
            notify,
            ["dynamodb:DeleteItem", "dynamodb:PutItem", "dynamodb:UpdateItem"],
            partitions=["notice#*"],
        )
        source.watched.allow_objects(
            notify,
            ["s3:GetObject"],
            "*/job.json",
            reason="A job's requests are in a file beside its tensors, and the names of jobs are "
            "not known at deployment; only objects called job.json can be read.",
        )
        source.watched.allow_listing(notify)
        notify.allow(["sns:Publish"], [topic.topic_arn])
        if source.encryption.data_key is None:
            notify.allow(KEY_ACTIONS, [source.encryption.key.key_arn])


def _log_groups(evaluations: Mapping[str, RuleEvaluation]) -> str:
    """Return the names of the log groups by rule."""
    names = {rule: found.evaluator.log_group.log_group_name for rule, found in evaluations.items()}
    return list_names(names, {rule: found.name for rule, found in evaluations.items()})
