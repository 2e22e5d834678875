"""A queue as the target of an event rule."""

from __future__ import annotations

import jsii
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sqs as sqs
from aws_cdk.interfaces.aws_events import IRuleRef

__all__ = ["QueueTarget"]


@jsii.implements(events.IRuleTarget)
class QueueTarget:
    """Lets an event rule send to a queue, and undeliverable events to a dead-letter queue.

    With a customer key, CDK's own target would allow event rules of all accounts to send to the
    queue.
    """

    def __init__(self, queue: sqs.Queue, dead_letters: sqs.Queue) -> None:
        """Describe the target."""
        self._queue, self._dead_letters = queue, dead_letters

    def bind(self, rule: IRuleRef, id: str | None = None) -> events.RuleTargetConfig:  # noqa: A002
        """Allow a rule to send to both queues."""
        del id
        for queue in (self._queue, self._dead_letters):
            queue.add_to_resource_policy(
                iam.PolicyStatement(
                    principals=[iam.ServicePrincipal("events.amazonaws.com")],
                    actions=["sqs:SendMessage"],
                    resources=[queue.queue_arn],
                    conditions={"ArnEquals": {"aws:SourceArn": rule.rule_ref.rule_arn}},
                )
            )
        return events.RuleTargetConfig(
            arn=self._queue.queue_arn,
            dead_letter_config=events.CfnRule.DeadLetterConfigProperty(
                arn=self._dead_letters.queue_arn
            ),
        )
