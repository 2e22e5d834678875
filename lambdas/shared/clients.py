"""AWS clients, made once a process and only when a function needs them.

Importing the SDK and making clients cost more than anything else in a cold start. So each client is
made on first use and kept (clients are safe to share between threads), and they come from botocore:
boto3's clients are these very ones, but importing boto3 also loads its transfer manager, which no
function here uses.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from botocore.config import Config
from botocore.session import Session, get_session

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_events import EventBridgeClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sagemaker import SageMakerClient
    from mypy_boto3_sqs import SQSClient

__all__ = [
    "batch",
    "dynamodb",
    "ecs",
    "eventbridge",
    "forget",
    "num_requests",
    "s3",
    "sagemaker",
    "sns",
    "sqs",
]

_MAX_PARALLEL_READS: Final = 16
# Index files are small and near: what takes longer than this is lost, and a retry is quicker.
_CONFIG: Final = Config(
    connect_timeout=3,
    read_timeout=10,
    max_pool_connections=_MAX_PARALLEL_READS,
    retries={"mode": "standard", "total_max_attempts": 4},
)


@cache
def s3() -> S3Client:
    """Return the client of the tensor buckets."""
    client: S3Client = _client("s3")
    return client


@cache
def dynamodb() -> DynamoDBClient:
    """Return the client of the state table."""
    client: DynamoDBClient = _client("dynamodb")
    return client


@cache
def eventbridge() -> EventBridgeClient:
    """Return the client of the event bus."""
    client: EventBridgeClient = _client("events")
    return client


@cache
def sagemaker() -> SageMakerClient:
    """Return the client that stops training jobs; evaluators never make it."""
    client: SageMakerClient = _client("sagemaker")
    return client


@cache
def sqs() -> SQSClient:
    """Return the client of the evaluators' queues; most calls of an evaluator need none."""
    client: SQSClient = _client("sqs")
    return client


@cache
def sns() -> Any:
    """Return the client of the topic that messages are sent to."""
    return _client("sns")


@cache
def batch() -> Any:
    """Return the client that stops jobs of AWS Batch."""
    return _client("batch")


@cache
def ecs() -> Any:
    """Return the client that stops tasks of ECS."""
    return _client("ecs")


def num_requests() -> int:
    """Return how many requests this process has sent so far, repeated ones counted."""
    return _counter.num


def forget() -> None:
    """Drop all clients, for tests that change credentials or endpoints within one process."""
    for function in (s3, dynamodb, eventbridge, sagemaker, sns, batch, ecs, sqs, _session):
        function.cache_clear()


class _Counter:
    """Counts requests; several threads send them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.num = 0

    def count(self, **_: Any) -> None:
        """Count the request that botocore is about to send; None lets it send it."""
        with self._lock:
            self.num += 1


_counter: Final = _Counter()


@cache
def _session() -> Session:
    return get_session()


def _client(service: str) -> Any:
    client = _session().create_client(service, config=_CONFIG)
    client.meta.events.register("before-send", _counter.count)
    return client
