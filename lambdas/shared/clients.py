"""AWS clients, created once per process when a function first needs them.

Importing the SDK and creating clients dominate a cold start. So each client is created on first use
and cached (clients are thread-safe). botocore creates them: boto3's clients are the same, but
importing boto3 also loads its transfer manager, which no function needs here.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
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
    "requests",
    "s3",
    "sagemaker",
    "sns",
    "sqs",
]

_MAX_PARALLEL_READS: Final = 16
# Index files are small and near: after this time a retry is faster than waiting.
_CONFIG: Final = Config(
    connect_timeout=3,
    read_timeout=10,
    max_pool_connections=_MAX_PARALLEL_READS,
    retries={"mode": "standard", "total_max_attempts": 4},
)


@cache
def s3() -> S3Client:
    """Return the client for the tensor buckets."""
    client: S3Client = _client("s3")
    return client


@cache
def dynamodb() -> DynamoDBClient:
    """Return the client for the state table."""
    client: DynamoDBClient = _client("dynamodb")
    return client


@cache
def eventbridge() -> EventBridgeClient:
    """Return the client for the event bus."""
    client: EventBridgeClient = _client("events")
    return client


@cache
def sagemaker() -> SageMakerClient:
    """Return the client that stops training jobs; evaluators do not use it."""
    client: SageMakerClient = _client("sagemaker")
    return client


@cache
def sqs() -> SQSClient:
    """Return the client for the evaluators' queues; most evaluator calls do not need it."""
    client: SQSClient = _client("sqs")
    return client


@cache
def sns() -> Any:
    """Return the client for the topic of messages."""
    return _client("sns")


@cache
def batch() -> Any:
    """Return the client that stops jobs of AWS Batch."""
    return _client("batch")


@cache
def ecs() -> Any:
    """Return the client that stops tasks of ECS."""
    return _client("ecs")


def requests() -> Counter[tuple[str, int]]:
    """Return the requests of this process so far, including retries.

    Their keys are the operation, such as `PutItem`, and the length of the body in KiB, rounded up.
    """
    return _counter.requests.copy()


def forget() -> None:
    """Drop all clients, for tests that change credentials or endpoints."""
    for function in (s3, dynamodb, eventbridge, sagemaker, sns, batch, ecs, sqs, _session):
        function.cache_clear()


class _Counter:
    """Counts requests of all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.requests: Counter[tuple[str, int]] = Counter()

    def count(self, request: Any, event_name: str, **_: Any) -> None:
        """Count a request that botocore is about to send; return None to let it proceed."""
        num_bytes = len(request.body) if isinstance(request.body, bytes | str) else 0
        key = event_name.rpartition(".")[2], math.ceil(num_bytes / 1024)
        with self._lock:
            self.requests[key] += 1


_counter: Final = _Counter()


@cache
def _session() -> Session:
    return get_session()


def _client(service: str) -> Any:
    client = _session().create_client(service, config=_CONFIG)
    client.meta.events.register("before-send", _counter.count)
    return client
