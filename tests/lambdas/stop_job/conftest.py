"""The bus, listened to."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from lambdas.contracts.events import stop_overdue_pattern

if TYPE_CHECKING:
    from tests.lambdas.conftest import Pipeline


@pytest.fixture
def news(pipeline: Pipeline) -> str:
    """The queue that the news of overdue stops goes to."""
    sqs, events = pipeline.aws("sqs"), pipeline.aws("events")
    url: str = sqs.create_queue(QueueName="news")["QueueUrl"]
    attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
    events.put_rule(Name="news", EventPattern=json.dumps(stop_overdue_pattern()))
    events.put_targets(Rule="news", Targets=[{"Id": "news", "Arn": attributes["QueueArn"]}])
    return url
