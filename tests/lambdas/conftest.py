"""The functions' surroundings: buckets, buses, queues and the table in moto, or all in memory."""

from __future__ import annotations

import hashlib
import importlib
import json
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from types import ModuleType
from typing import Any

import boto3
import numpy as np
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from hook_layer.format.end_marker import EndMarker
from hook_layer.format.index import IndexFile, TensorShape
from hook_layer.format.job_file import JobFile
from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import END_MARKER, JOB_FILE, index_key
from hook_layer.format.statistics_block import STATISTICS_COLUMNS, Statistics
from hook_layer.storage.memory import MemoryStore
from lambdas.contracts import environment
from lambdas.contracts.events import (
    ACTIVE_ATTRIBUTE,
    ACTIVE_INDEX,
    ACTIVE_INDEX_ATTRIBUTES,
    CUSTOM_RULES,
    STATUS_DETAIL_TYPE,
    STATUS_SOURCE,
    UPDATED_AT_ATTRIBUTE,
    job_summary_pattern,
    tensor_object_pattern,
)
from lambdas.evaluate_rule.continuation import Continuations
from lambdas.evaluate_rule.job_evaluation import JobEvaluation
from lambdas.evaluate_rule.job_limits import MAX_JOB_BYTES, JobLimits
from lambdas.evaluate_rule.job_registry import JobRegistry
from lambdas.evaluate_rule.publication import Publication
from lambdas.evaluate_rule.rules import DeployedRules, RuleSource
from lambdas.evaluate_rule.run_evaluation import RunEvaluation
from lambdas.evaluate_rule.service import EvaluateRuleService
from lambdas.shared.observability import Telemetry
from lambdas.shared.registration import Registration
from lambdas.shared.state_item import successor
from lambdas.shared.state_table import RuleItems, StateKey, StoredState, VersionConflictError
from rule_runtime.engine.progress import Patience
from rule_runtime.engine.state import EvaluationState

REGION = "eu-west-1"
BUCKET = "tensors"
RULE_BUCKET = "rules"
TABLE = "states"
RULE = "ExplodingTensor"
ROOT = "mnist-7/debug-output/"
RUN = "01JD0000000000000000000001"
TENSOR = "gradient/conv.weight"
ARN = f"arn:aws:sagemaker:{REGION}:123456789012:training-job/mnist-7"


def index_bytes(
    step: int,
    *,
    run: str | None = RUN,
    sequence: int | None = None,
    workers: int | None = 1,
    num_nan: float = 0,
    tensor: str = TENSOR,
) -> bytes:
    """Return an index file that holds the statistics of one tensor."""
    row = dict.fromkeys(STATISTICS_COLUMNS, 1.0) | {"size": 4.0, "nan": num_nan, "inf": 0.0}
    statistics = Statistics(
        columns=STATISTICS_COLUMNS,
        tensors=(tensor,),
        dtypes=("float32",),
        shapes=((4,),),
        values=np.array([[row[name] for name in STATISTICS_COLUMNS]]),
        crc32c=(None,),
    )
    return IndexFile(
        mode=ModeKeys.TRAIN,
        mode_step=step,
        event_file_name=None,
        locations=(),
        shapes=(TensorShape(tensor, tensor, (4,)),),
        statistics=statistics,
        run=run,
        workers=workers,
        sequence=step + 1 if sequence is None else sequence,
    ).encode()


def job_bytes(run: str = RUN, **changes: Any) -> bytes:
    """Return the `job.json` of a run."""
    job = JobFile("mnist-7", run, "sagemaker", "2026-11-20T10:00:00Z", training_job_arn=ARN)
    return replace(job, **changes).encode()


def marker_bytes(run: str | None = RUN, **sequences: int) -> bytes:
    """Return the end marker of a run; None for the original client's."""
    return EndMarker(run, sequences).encode()


def s3_event(key: str, bucket: str = BUCKET, **changes: Any) -> dict[str, Any]:
    """Return an event as S3 sends it to EventBridge."""
    return {
        "version": "0",
        "id": "17793124-05d4-b198-2fde-7ededc63b103",
        "detail-type": "Object Created",
        "source": "aws.s3",
        "account": "123456789012",
        "time": "2026-11-20T10:00:00Z",
        "region": REGION,
        "resources": [f"arn:aws:s3:::{bucket}"],
        "detail": {
            "version": "0",
            "bucket": {"name": bucket},
            "object": {
                "key": key,
                "size": 5,
                "etag": "b57f9512",
                "sequencer": "00617F08299329D189",
            },
            "request-id": "N4N7GDK58NMKJ12R",
            "requester": "123456789012",
            "source-ip-address": "1.2.3.4",
            "reason": "PutObject",
        },
        **changes,
    }


def sqs_record(body: object, message_id: str, receive_count: int = 1) -> dict[str, Any]:
    """Return a record as Lambda's poller hands it over."""
    return {
        "messageId": message_id,
        "receiptHandle": "AQEBwJnKyrHigUMZj6rYigCgxlaS3SLy0a",
        "body": body if isinstance(body, str) else json.dumps(body),
        "attributes": {
            "ApproximateReceiveCount": str(receive_count),
            "SentTimestamp": "1795168800000",
        },
        "messageAttributes": {},
        "md5OfBody": "e4e68fb7bd0e697a0ae8f1bb342846b3",
        "eventSource": "aws:sqs",
        "eventSourceARN": f"arn:aws:sqs:{REGION}:123456789012:evaluator",
        "awsRegion": REGION,
    }


def refusal(code: str, message: str = "refused") -> Callable[..., Any]:
    """Return an operation of a client that AWS refuses."""

    def refuse(**_: Any) -> Any:
        raise ClientError({"Error": {"Code": code, "Message": message}}, "Operation")

    return refuse


@cache
def client(service: str) -> Any:
    """Return the tests' own client; making one takes longer than a test."""
    return boto3.session.Session(region_name=REGION).client(service)


@dataclass
class LambdaContext:
    """What Lambda tells a function about its invocation."""

    remaining_ms: list[int] = field(default_factory=lambda: [60_000])
    aws_request_id: str = "52fdfc07-2182-154f-163f-5f0f9a621d72"
    function_name: str = "evaluate"
    memory_limit_in_mb: int = 512
    invoked_function_arn: str = f"arn:aws:lambda:{REGION}:123456789012:function:evaluate"

    def get_remaining_time_in_millis(self) -> int:
        """Return the next of the prepared answers, the last one again and again."""
        return self.remaining_ms.pop(0) if len(self.remaining_ms) > 1 else self.remaining_ms[0]


class MemoryStateTable:
    """The states in this process's memory, with the same conditions and the same encoding."""

    def __init__(self, clock: Callable[[], float] = lambda: 0.0) -> None:
        self.items: dict[StateKey, StoredState] = {}
        self.clock = clock

    def load(self, key: StateKey) -> StoredState | None:
        return self.items.get(key)

    def save(self, stored: StoredState, state: EvaluationState) -> StoredState:
        current = self.items.get(stored.key)
        if (current.version if current else 0) != stored.version:
            raise VersionConflictError(stored.key, current)
        announced = current.state.announced_transition if current else 0
        content = json.loads(zlib.decompress(zlib.compress(json.dumps(state.to_json()).encode())))
        saved = successor(stored, EvaluationState.from_json(content), self.clock())
        saved = replace(saved, state=replace(saved.state, announced_transition=announced))
        self.items[stored.key] = saved
        return saved

    def mark_announced(self, stored: StoredState) -> StoredState:
        current = self.items[stored.key]
        announced = max(current.state.announced_transition, stored.state.transition)
        self.items[stored.key] = replace(
            current, state=replace(current.state, announced_transition=announced)
        )
        return replace(stored, state=stored.state.announced())


class MemoryRegistrations:
    """Registrations in this process's memory."""

    def __init__(self) -> None:
        self.items: dict[tuple[str, str], Registration] = {}

    def put(self, registration: Registration) -> None:
        stored = replace(registration, rules=None, rule_problems=())
        self.items[registration.training_job_name, registration.root_uri] = stored

    def get(self, training_job_name: str, root_uri: str) -> Registration | None:
        return self.items.get((training_job_name, root_uri))

    def find(self, training_job_name: str) -> list[Registration]:
        return [found for (name, _), found in self.items.items() if name == training_job_name]


class MemoryAttempts:
    """Notes of attempts in this process's memory."""

    def __init__(self) -> None:
        self.notes: Counter[str] = Counter()

    def num_unfinished(self, root_uri: str, rule: str = "") -> int:
        return self.notes[root_uri + rule]

    def begin(self, root_uri: str, rule: str = "", until: float = 0) -> None:  # noqa: ARG002
        self.notes[root_uri + rule] += 1

    def end(self, root_uri: str, rule: str = "") -> None:
        del self.notes[root_uri + rule]


class MemoryBus:
    """Keeps the details of the events that it was to publish."""

    def __init__(self) -> None:
        self.details: list[dict[str, Any]] = []

    def publish(
        self, detail_type: str, detail: Mapping[str, Any], *, arn: str | None = None, subject: str
    ) -> None:
        assert detail_type == STATUS_DETAIL_TYPE
        assert detail["DebugOutputUri"] in subject
        assert arn in (None, detail.get("TrainingJobArn"))
        self.details.append(json.loads(json.dumps(detail)))


@dataclass
class MemoryPipeline:
    """An evaluator whose bucket, table and bus are in memory."""

    rule_name: str = RULE
    parameters: Mapping[str, str] = field(default_factory=lambda: {"rule_to_invoke": RULE})
    rule_source: RuleSource | None = None
    store: MemoryStore = field(default_factory=MemoryStore)
    other_stores: dict[str, MemoryStore] = field(default_factory=dict)
    states: MemoryStateTable = field(default_factory=MemoryStateTable)
    registrations: MemoryRegistrations = field(default_factory=MemoryRegistrations)
    bus: MemoryBus = field(default_factory=MemoryBus)
    attempts: MemoryAttempts = field(default_factory=MemoryAttempts)
    results: MemoryStore = field(default_factory=MemoryStore)
    queue: Any = None
    patience: Patience = field(default_factory=Patience)
    now: float = 1000.0
    job_files_per_minute: int = 1_000_000

    def service(self) -> EvaluateRuleService:
        """Return a fresh evaluator, as after a cold start."""
        telemetry = Telemetry("evaluate_rule", rule=self.rule_name)
        self.states.clock = lambda: self.now
        registry = JobRegistry(self.registrations, telemetry, clock=lambda: self.now)
        rule_source = self.rule_source or DeployedRules({self.rule_name: self.parameters})
        states = RuleItems(self.states)
        evaluation = RunEvaluation(
            rule_source=rule_source,
            states=states,
            publication=Publication(
                bus=self.bus,
                open_store=lambda _: self.results,
                continuations=Continuations(self.rule_name, self.queue, telemetry),
                telemetry=telemetry,
                clock=lambda: self.now,
            ),
            telemetry=telemetry,
            patience=self.patience,
            clock=lambda: self.now,
            sleep=lambda _: None,
        )
        return EvaluateRuleService(
            bucket_names={BUCKET},
            jobs=JobEvaluation(rule_source, registry, evaluation, telemetry),
            attempts=self.attempts,
            open_store=lambda uri: self.other_stores.get(uri, self.store),
            limits=JobLimits(self.job_files_per_minute, MAX_JOB_BYTES, lambda: self.now),
            telemetry=telemetry,
        )

    def records(self, keys: Sequence[str]) -> list[dict[str, Any]]:
        """Return the records of the creation of these objects."""
        return [sqs_record(s3_event(ROOT + key), f"m{i}") for i, key in enumerate(keys)]

    def record(self, root: str, key: str, receive_count: int = 1) -> dict[str, Any]:
        """Return the record of the creation of one object below a root; its id is the root."""
        return sqs_record(s3_event(root + key), root, receive_count)

    def state(self, run: str = RUN) -> EvaluationState:
        """Return the committed state of a run."""
        return self.states.items[StateKey(self.store.uri, run, self.rule_name)].state

    def statuses(self) -> list[str]:
        """Return the announced statuses in order."""
        return [
            detail["DebugRuleEvaluationStatuses"][0]["RuleEvaluationStatus"]
            for detail in self.bus.details
        ]


@dataclass
class Pipeline:
    """An evaluator and the function that stops jobs, over AWS in moto."""

    evaluate_rule: ModuleType
    stop_job: ModuleType
    sweep_module: ModuleType
    finish_job: ModuleType
    queue_url: str
    statuses_url: str
    summaries_url: str
    forget: Callable[[], None]
    patch: pytest.MonkeyPatch

    def put(self, key: str, data: bytes, root: str = ROOT) -> None:
        client("s3").put_object(Bucket=BUCKET, Key=root + key, Body=data)

    def aws(self, service: str) -> Any:
        """Return a client that is not the functions' own."""
        return client(service)

    def put_job(self, run: str = RUN, root: str = ROOT, **changes: Any) -> None:
        self.put(JOB_FILE, job_bytes(run, **changes), root)

    def put_step(
        self, step: int, *, worker: str = "worker_0", root: str = ROOT, **index: Any
    ) -> None:
        self.put(index_key(step, worker), index_bytes(step, **index), root)

    def put_marker(self, run: str | None = RUN, root: str = ROOT) -> None:
        self.put(END_MARKER, marker_bytes(run), root)

    def receive(self) -> list[dict[str, Any]]:
        """Return the messages in the evaluator's queue, one batch, as records."""
        answer = client("sqs").receive_message(
            QueueUrl=self.queue_url, MaxNumberOfMessages=10, VisibilityTimeout=0
        )
        return [
            {
                **sqs_record(message["Body"], message["MessageId"]),
                "handle": message["ReceiptHandle"],
            }
            for message in answer.get("Messages", [])
        ]

    def invoke(
        self, records: Sequence[Mapping[str, Any]], remaining_ms: Sequence[int] = (60_000,)
    ) -> list[str]:
        """Call the evaluator; return the ids of the records that failed."""
        event = {"Records": [dict(record) for record in records]}
        answer = self.evaluate_rule.lambda_handler(event, LambdaContext(list(remaining_ms)))
        return [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]

    def stop(self, event: object) -> Any:
        """Call the function that stops jobs."""
        return self.stop_job.lambda_handler(event, LambdaContext())

    def sweep(self) -> int:
        """Call the function that looks after quiet runs; return how many it woke."""
        answer = self.sweep_module.lambda_handler({}, LambdaContext())
        woken: int = answer["woken"]
        return woken

    def finish(self, event: object) -> str:
        """Call the function that learns of ended jobs; return what it says."""
        answer = self.finish_job.lambda_handler(event, LambdaContext())
        assert answer["statusCode"] == 200
        text: str = json.loads(answer["body"])
        return text

    def grow_quiet(self, seconds: float, run: str = RUN, root: str = ROOT) -> None:
        """Make it so long ago that files of a run were taken in."""
        updated_at = round((time.time() - seconds) * 1000)
        client("dynamodb").update_item(
            TableName=TABLE,
            Key={"run": {"S": f"s3://{BUCKET}/{root}#{run}"}, "rule": {"S": RULE}},
            UpdateExpression="SET updated_at = :at, seen_at = :at",
            ExpressionAttributeValues={":at": {"N": str(updated_at)}},
        )

    def deliver(self) -> None:
        """Do what Lambda's poller does until the queue is empty, if nothing fails."""
        sqs = client("sqs")
        while records := self.receive():
            failed = self.invoke(records)
            assert not failed
            for record in records:
                sqs.delete_message(QueueUrl=self.queue_url, ReceiptHandle=record["handle"])

    def verdict(self) -> dict[str, Any]:
        """Return the status that was announced last."""
        *_, last = self.announced()
        status: dict[str, Any] = last["DebugRuleEvaluationStatuses"][0]
        return status

    def announced(self) -> list[dict[str, Any]]:
        """Return the details of the status events published so far, and forget them."""
        return self._details(self.statuses_url)

    def summaries(self) -> list[dict[str, Any]]:
        """Return the details of the summaries published so far, and forget them."""
        return self._details(self.summaries_url)

    def _details(self, url: str) -> list[dict[str, Any]]:
        sqs = client("sqs")
        details = []
        while messages := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
            for message in messages:
                details.append(json.loads(message["Body"])["detail"])
                sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return details

    def statuses(self) -> list[str]:
        """Return the statuses announced so far, and forget them."""
        return [
            detail["DebugRuleEvaluationStatuses"][0]["RuleEvaluationStatus"]
            for detail in self.announced()
        ]

    def state_item(self, run: str = RUN, root: str = ROOT) -> dict[str, Any]:
        """Return the state's item in the table."""
        answer = client("dynamodb").get_item(
            TableName=TABLE,
            Key={"run": {"S": f"s3://{BUCKET}/{root}#{run}"}, "rule": {"S": RULE}},
        )
        return answer["Item"]


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An AWS account in moto with a tensor bucket and a state table.

    The functions' own clients outlive it: moto answers whatever client asks.
    """
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.setenv(environment.RULE_CONFIGURATION_NAME, RULE)
    monkeypatch.setenv(environment.RULE_PARAMETERS, json.dumps({"rule_to_invoke": RULE}))
    monkeypatch.setenv(environment.STATE_TABLE_NAME, TABLE)
    monkeypatch.setenv(environment.TENSOR_BUCKET_NAMES, BUCKET)
    with mock_aws():
        client("s3").create_bucket(
            Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION}
        )
        client("dynamodb").create_table(
            TableName=TABLE,
            KeySchema=[
                {"AttributeName": "run", "KeyType": "HASH"},
                {"AttributeName": "rule", "KeyType": "RANGE"},
            ],
            AttributeDefinitions=[
                {"AttributeName": "run", "AttributeType": "S"},
                {"AttributeName": "rule", "AttributeType": "S"},
                {"AttributeName": ACTIVE_ATTRIBUTE, "AttributeType": "S"},
                {"AttributeName": UPDATED_AT_ATTRIBUTE, "AttributeType": "N"},
            ],
            GlobalSecondaryIndexes=[
                {
                    "IndexName": ACTIVE_INDEX,
                    "KeySchema": [
                        {"AttributeName": ACTIVE_ATTRIBUTE, "KeyType": "HASH"},
                        {"AttributeName": UPDATED_AT_ATTRIBUTE, "KeyType": "RANGE"},
                    ],
                    "Projection": {
                        "ProjectionType": "INCLUDE",
                        "NonKeyAttributes": list(ACTIVE_INDEX_ATTRIBUTES),
                    },
                }
            ],
            BillingMode="PAY_PER_REQUEST",
        )
        yield


@pytest.fixture
def pipeline(aws: None, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """The functions over AWS in moto, with events that flow as in a deployment."""
    client("s3").put_bucket_notification_configuration(
        Bucket=BUCKET, NotificationConfiguration={"EventBridgeConfiguration": {}}
    )
    queue_url = _subscribed_queue("evaluator", tensor_object_pattern([BUCKET]))
    of_rules = {"source": [STATUS_SOURCE], "detail-type": [STATUS_DETAIL_TYPE]}
    statuses_url = _subscribed_queue("statuses", of_rules)
    summaries_url = _subscribed_queue("summaries", job_summary_pattern())
    evaluate_rule = importlib.import_module("lambdas.evaluate_rule.handler")
    stop_job = importlib.import_module("lambdas.stop_job.handler")
    sweep = importlib.import_module("lambdas.sweep.handler")
    finish_job = importlib.import_module("lambdas.finish_job.handler")
    monkeypatch.setenv(environment.QUEUE_URL, queue_url)
    monkeypatch.setenv(environment.RULE_QUEUE_URLS, json.dumps({RULE: queue_url}))

    def forget() -> None:
        for cached in (
            evaluate_rule._settings,
            evaluate_rule._telemetry,
            evaluate_rule._service,
            evaluate_rule._redelivery,
            stop_job._service,
            sweep._service,
            finish_job._service,
        ):
            cached.cache_clear()

    forget()
    modules = (evaluate_rule, stop_job, sweep, finish_job)
    return Pipeline(*modules, queue_url, statuses_url, summaries_url, forget, monkeypatch)


def _subscribed_queue(name: str, pattern: Mapping[str, Any]) -> str:
    sqs, events = client("sqs"), client("events")
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
    events.put_rule(Name=name, EventPattern=json.dumps(pattern))
    events.put_targets(Rule=name, Targets=[{"Id": name, "Arn": attributes["QueueArn"]}])
    return url


@pytest.fixture
def custom_rules(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Callable[..., dict[str, Any]]]:
    """Makes the evaluator the one that runs the deployer's files, and puts these into their bucket.

    The function returns what makes the configuration of a job that uses one of them.
    """

    def configured(
        files: Mapping[str, str], *, pinned: Mapping[str, str] | None = None
    ) -> Callable[..., dict[str, Any]]:
        place = {"LocationConstraint": REGION}
        if not client("s3").list_buckets(Prefix=RULE_BUCKET)["Buckets"]:
            client("s3").create_bucket(Bucket=RULE_BUCKET, CreateBucketConfiguration=place)
        for name, text in files.items():
            client("s3").put_object(Bucket=RULE_BUCKET, Key=name, Body=text.encode())
        digests = {n: hashlib.sha256(text.encode()).hexdigest() for n, text in files.items()}
        monkeypatch.setenv(environment.RULE_CONFIGURATION_NAME, CUSTOM_RULES)
        monkeypatch.setenv(environment.CUSTOM_RULE_BUCKET, RULE_BUCKET)
        monkeypatch.setenv(environment.CUSTOM_RULES, json.dumps({**digests, **(pinned or {})}))
        monkeypatch.setenv(
            environment.RULE_QUEUE_URLS, json.dumps({CUSTOM_RULES: pipeline.queue_url})
        )
        pipeline.forget()
        return configuration

    def configuration(file: str, name: str = RULE, **parameters: str) -> dict[str, Any]:
        source = {"source_s3_uri": f"s3://{RULE_BUCKET}/{file}"}
        return {"RuleConfigurationName": name, "RuleParameters": {**source, **parameters}}

    return configured


@pytest.fixture
def memory_state_table() -> Callable[[], MemoryStateTable]:
    """Makes tables in memory."""
    return MemoryStateTable


@pytest.fixture(scope="session")
def memory_pipelines() -> Callable[..., MemoryPipeline]:
    """Makes evaluators without AWS."""
    return MemoryPipeline


@dataclass(frozen=True)
class TrialFiles:
    """Makes the files of trials."""

    index_bytes: Callable[..., bytes] = index_bytes
    job_bytes: Callable[..., bytes] = job_bytes
    marker_bytes: Callable[..., bytes] = marker_bytes


@pytest.fixture(scope="session")
def trial_files() -> TrialFiles:
    """Makes the files of trials."""
    return TrialFiles()
