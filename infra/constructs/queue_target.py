"""A queue with its dead letters, as the target of an event rule."""

from __future__ import annotations

import jsii
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sqs as sqs
from aws_cdk.interfaces.aws_events import IRuleRef

from infra.constructs.trust import Trust

__all__ = ["QueueTarget"]


@jsii.implements(events.IRuleTarget)
class QueueTarget:
    """Lets an event rule send to a queue, and undeliverable events to a dead-letter queue.

    Both queues have one policy, in which "*" is the queue that has the policy.
    """

    def __init__(self, queue: sqs.Queue, dead_letters: sqs.Queue, trust: Trust) -> None:
        """Create the policy of both queues."""
        self._queue, self._dead_letters = queue, dead_letters
        # With the id that CDK gives to a queue's own policy: CloudFormation empties the policy of a
        # queue when it deletes another one for it.
        policy = sqs.QueuePolicy(queue, "Policy", queues=[queue, dead_letters])
        self._statements = policy.document
        self._statements.add_statements(
            iam.PolicyStatement(
                effect=iam.Effect.DENY,
                principals=[iam.AnyPrincipal()],
                actions=["sqs:*"],
                resources=["*"],
                conditions={"Bool": {"aws:SecureTransport": "false"}},
            ),
            trust.queue_statement("*"),
        )

    def bind(self, rule: IRuleRef, id: str | None = None) -> events.RuleTargetConfig:  # noqa: A002
        """Allow a rule to send to both queues."""
        del id
        self._statements.add_statements(
            iam.PolicyStatement(
                principals=[iam.ServicePrincipal("events.amazonaws.com")],
                actions=["sqs:SendMessage"],
                resources=["*"],
                conditions={"ArnEquals": {"aws:SourceArn": rule.rule_ref.rule_arn}},
            )
        )
        return events.RuleTargetConfig(
            arn=self._queue.queue_arn,
            dead_letter_config=events.CfnRule.DeadLetterConfigProperty(
                arn=self._dead_letters.queue_arn
            ),
        )
