"""A table that refuses many writes delays a verdict by seconds."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest
from botocore.exceptions import ClientError

from lambdas.shared import clients
from tests.lambdas.conftest import Pipeline, sqs_record

SHARE = 0.4
MOST_S = 60.0


@pytest.mark.parametrize("seed", range(5))
def test_a_verdict_under_forty_percent_refused_writes_takes_seconds(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance, waited = random.Random(seed), []
    throttled: Any = {"Error": {"Code": "ThrottlingException", "Message": "too many"}}
    for name in ("update_item", "put_item"):
        write = getattr(clients.dynamodb(), name)

        def refused(write: Any = write, name: str = name, **arguments: Any) -> Any:
            if chance.random() < SHARE:
                raise ClientError(throttled, name)
            return write(**arguments)

        monkeypatch.setattr(clients.dynamodb(), name, refused)
    monkeypatch.setattr(time, "sleep", waited.append)

    def hidden(QueueUrl: str, Entries: list[dict[str, Any]]) -> None:  # noqa: N803 - as boto3 has it
        assert QueueUrl == pipeline.queue_url
        waited.append(max(entry["VisibilityTimeout"] for entry in Entries))

    monkeypatch.setattr(clients.sqs(), "change_message_visibility_batch", hidden)
    pipeline.put_job()
    for step in range(5):
        pipeline.put_step(step, num_nan=4 * (step == 4))
    records, count = pipeline.receive(), 0
    while records:
        count += 1
        repeated = [sqs_record(record["body"], record["messageId"], count) for record in records]
        failed = pipeline.invoke(repeated)
        records = [record for record in records if record["messageId"] in failed]
    assert pipeline.statuses()[-1] == "IssuesFound"
    assert sum(waited) < MOST_S


def test_failed_records_come_back_later_each_time(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.put_job()
    pipeline.put_step(0)
    asked: list[int] = []
    monkeypatch.setattr(
        clients.sqs(),
        "change_message_visibility_batch",
        lambda **request: asked.extend(e["VisibilityTimeout"] for e in request["Entries"]),
    )
    monkeypatch.setattr(clients.dynamodb(), "get_item", _unavailable)
    (record,) = pipeline.receive()
    for count in (1, 2, 5, 20):
        assert pipeline.invoke([sqs_record(record["body"], "m", count)]) == ["m"]
    assert [low <= seconds <= 2 * low for seconds, low in zip(asked, (1, 2, 16, 150), strict=True)]
    assert max(asked) <= 300


def _unavailable(**_: Any) -> Any:
    raise ClientError({"Error": {"Code": "ServiceUnavailable", "Message": "later"}}, "GetItem")
