"""The same surroundings in moto: slower than `in_memory_aws`, and written by others."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

from benchmarks.cost.functions import BUCKET, REGION, SURROUNDINGS, TABLE, queue_url
from lambdas.contracts.events import (
    ACTIVE_ATTRIBUTE,
    ACTIVE_INDEX,
    ACTIVE_INDEX_ATTRIBUTES,
    STATE_PARTITION_KEY,
    STATE_SORT_KEY,
    UPDATED_AT_ATTRIBUTE,
)

__all__ = ["emptied_moto"]


@contextmanager
def emptied_moto(num_queues: int) -> Iterator[Callable[[str, bytes], None]]:
    """Make a bucket, the state table and queues in moto; yield what stores an object.

    Args:
        num_queues: How many queues.
    """
    import boto3  # noqa: PLC0415 - neither is there where only the evaluator is measured
    from moto import mock_aws  # noqa: PLC0415

    with patch.dict(os.environ, SURROUNDINGS), mock_aws():
        session = boto3.session.Session(region_name=REGION)
        s3 = session.client("s3")
        s3.create_bucket(Bucket=BUCKET)
        _make_table(session)
        for number in range(num_queues):
            name = queue_url(number).rpartition("/")[2]
            session.client("sqs").create_queue(QueueName=name)

        def store(key: str, content: bytes) -> None:
            s3.put_object(Bucket=BUCKET, Key=key, Body=content)

        yield store


def _make_table(session: object) -> None:
    names = (STATE_PARTITION_KEY, STATE_SORT_KEY, ACTIVE_ATTRIBUTE, UPDATED_AT_ATTRIBUTE)
    kinds = {name: "N" if name == UPDATED_AT_ATTRIBUTE else "S" for name in names}
    keys = [
        [
            {"AttributeName": partition, "KeyType": "HASH"},
            {"AttributeName": sort, "KeyType": "RANGE"},
        ]
        for partition, sort in (names[:2], names[2:])
    ]
    projection = {
        "ProjectionType": "INCLUDE",
        "NonKeyAttributes": list(ACTIVE_INDEX_ATTRIBUTES),
    }
    session.client("dynamodb").create_table(  # type: ignore[attr-defined]
        TableName=TABLE,
        KeySchema=keys[0],
        AttributeDefinitions=[
            {"AttributeName": name, "AttributeType": kind} for name, kind in kinds.items()
        ],
        GlobalSecondaryIndexes=[
            {"IndexName": ACTIVE_INDEX, "KeySchema": keys[1], "Projection": projection}
        ],
        BillingMode="PAY_PER_REQUEST",
    )
