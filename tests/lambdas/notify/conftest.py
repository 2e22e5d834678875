"""A topic in moto, and a mailbox that hears of everything that is published to it."""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass
from typing import Any

import pytest

from lambdas.contracts import environment
from tests.lambdas.conftest import LambdaContext, Pipeline


@dataclass
class Mailbox:
    """The function, and a queue that is subscribed to its topic."""

    pipeline: Pipeline
    function: Any
    queue_url: str
    topic_arn: str

    def tell(self, event: object) -> None:
        self.function.lambda_handler(event, LambdaContext())

    def messages(self) -> list[dict[str, Any]]:
        """Return the messages since the last time, in the envelope of SNS."""
        sqs, found = self.pipeline.aws("sqs"), []
        while messages := sqs.receive_message(QueueUrl=self.queue_url, MaxNumberOfMessages=10).get(
            "Messages"
        ):
            for message in messages:
                found.append(json.loads(message["Body"]))
                sqs.delete_message(QueueUrl=self.queue_url, ReceiptHandle=message["ReceiptHandle"])
        return found

    def subscribe(self, name: str, **policy: Any) -> Mailbox:
        """Return a mailbox that a filter policy keeps messages away from."""
        sqs = self.pipeline.aws("sqs")
        url = sqs.create_queue(QueueName=name)["QueueUrl"]
        attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
        self.pipeline.aws("sns").subscribe(
            TopicArn=self.topic_arn,
            Protocol="sqs",
            Endpoint=attributes["Attributes"]["QueueArn"],
            Attributes={"FilterPolicy": json.dumps(policy)} if policy else {},
        )
        return Mailbox(self.pipeline, self.function, url, self.topic_arn)


@pytest.fixture
def mailbox(pipeline: Pipeline) -> Mailbox:
    """A mailbox that gets every message."""
    topic_arn = pipeline.aws("sns").create_topic(Name="findings")["TopicArn"]
    pipeline.patch.setenv(environment.TOPIC_ARN, topic_arn)
    function = importlib.import_module("lambdas.notify.handler")
    function._service.cache_clear()
    return Mailbox(pipeline, function, "", topic_arn).subscribe("everything")
