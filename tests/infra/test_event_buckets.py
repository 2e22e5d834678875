"""Buckets of others: whether they send events, and switching it on without harm."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws
from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends

from infra import event_buckets

REGION = "eu-west-1"


def answer_whole(http_response: Any, parsed: dict[str, Any], **_: Any) -> None:
    """Say whether events go to EventBridge, which moto knows and leaves out of its answer."""
    for name, bucket in s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets.items():
        reported = bucket.notification_configuration
        if name in http_response.url and reported is not None and reported.event_bridge is not None:
            parsed["EventBridgeConfiguration"] = {}


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    with mock_aws():
        boto3.setup_default_session()
        session: Any = boto3.DEFAULT_SESSION
        session.events.register("after-call.s3.GetBucketNotificationConfiguration", answer_whole)
        client = boto3.client("s3")
        for bucket in ("loud", "silent"):
            where: Any = {"LocationConstraint": REGION}
            client.create_bucket(Bucket=bucket, CreateBucketConfiguration=where)
        client.put_bucket_notification_configuration(
            Bucket="loud", NotificationConfiguration={"EventBridgeConfiguration": {}}
        )
        yield client
    boto3.DEFAULT_SESSION = None


@pytest.mark.usefixtures("s3")
def test_a_bucket_of_another_region_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """EventBridge has its events there, and a deployment here never sees them."""
    where: Any = {"LocationConstraint": "eu-central-1"}
    elsewhere = boto3.client("s3", region_name="eu-central-1")
    elsewhere.create_bucket(Bucket="far-away", CreateBucketConfiguration=where)
    assert event_buckets.main(["--enable", "far-away"]) == 1
    reported = capsys.readouterr().err
    assert reported == (
        "far-away: is in eu-central-1; its events stay there: deploy there, not in eu-west-1\n"
    )


def test_a_silent_bucket_is_reported_with_what_to_run(
    s3: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert event_buckets.main(["loud", "silent"]) == 1
    printed = capsys.readouterr()
    assert printed.out == "loud: sends its events to EventBridge\n"
    assert "silent: sends no events to EventBridge; enable it: python -m" in printed.err
    assert "--enable silent" in printed.err
    assert "EventBridgeConfiguration" not in s3.get_bucket_notification_configuration(
        Bucket="silent"
    )


def test_switching_it_on_keeps_what_the_bucket_does_already(s3: Any) -> None:
    sqs = boto3.client("sqs")
    url = sqs.create_queue(QueueName="of-others")["QueueUrl"]
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
    of_others = {
        "Id": "theirs",
        "QueueArn": found["QueueArn"],
        "Events": ["s3:ObjectCreated:*"],
        "Filter": {"Key": {"FilterRules": [{"Name": "prefix", "Value": "in/"}]}},
    }
    s3.put_bucket_notification_configuration(
        Bucket="silent", NotificationConfiguration={"QueueConfigurations": [of_others]}
    )
    before = s3.get_bucket_notification_configuration(Bucket="silent")["QueueConfigurations"]
    assert event_buckets.main(["--enable", "silent"]) == 0
    after = s3.get_bucket_notification_configuration(Bucket="silent")
    assert after["EventBridgeConfiguration"] == {}
    assert after["QueueConfigurations"] == before
    assert event_buckets.main(["silent"]) == 0


def test_a_bucket_that_is_not_there_is_reported(
    s3: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert event_buckets.main(["absent"]) == 1
    assert "absent: " in capsys.readouterr().err


def test_without_names_the_buckets_are_those_of_the_project(
    s3: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    context = {"stepwatch:tensor_buckets": "loud"}
    monkeypatch.setattr(event_buckets, "project_context", lambda: context)
    assert event_buckets.main([]) == 0
    assert capsys.readouterr().out.startswith("loud: ")
    context.clear()
    assert event_buckets.main([]) == 0
