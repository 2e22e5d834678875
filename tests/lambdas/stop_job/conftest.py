"""The bus, listened to."""

from __future__ import annotations

import json

import pytest

from infra.local.moto_patches.training_jobs import patch_training_job_life
from lambdas.contracts import environment
from lambdas.contracts.events import stop_overdue_pattern
from lambdas.contracts.stopping import ALL
from tests.lambdas.conftest import Pipeline


@pytest.fixture(autouse=True)
def any_job_may_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most tests are about jobs that need no consent; `test_opt_in.py` tests the default."""
    monkeypatch.setenv(environment.STOP_POLICY, ALL)


@pytest.fixture(autouse=True)
def training_job_life() -> None:
    patch_training_job_life()


@pytest.fixture
def news(pipeline: Pipeline) -> str:
    """The queue that the news of overdue stops goes to."""
    sqs, events = pipeline.aws("sqs"), pipeline.aws("events")
    url: str = sqs.create_queue(QueueName="news")["QueueUrl"]
    attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
    events.put_rule(Name="news", EventPattern=json.dumps(stop_overdue_pattern()))
    events.put_targets(Rule="news", Targets=[{"Id": "news", "Arn": attributes["QueueArn"]}])
    return url
