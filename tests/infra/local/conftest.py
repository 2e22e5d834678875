"""A fresh emulator a test, and ways to put small functions into it."""

from __future__ import annotations

import io
import json
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from infra.local.emulator import Emulator
from infra.local.poller_process import PollerProcess
from infra.local.service_environment import client_factory

CODE_BUCKET = "code"
HANDLER_SOURCE = '''
import json, os, time

def note(**fields):
    with open(os.environ["NOTES"], "a") as notes:
        notes.write(json.dumps({"pid": os.getpid(), **fields}) + "\\n")

def on_messages(event, context):
    """Does what the bodies of the messages say."""
    failed = []
    note(
        event=event,
        remaining_ms=context.get_remaining_time_in_millis(),
        initialization_type=os.environ.get("AWS_LAMBDA_INITIALIZATION_TYPE"),
    )
    for record in event["Records"]:
        body = record["body"]
        if body == "fail":
            failed.append({"itemIdentifier": record["messageId"]})
        elif body == "raise":
            raise ValueError("as told")
        elif body == "crash":
            os._exit(3)
        elif body == "hang" and not os.path.exists(os.environ["NOTES"] + ".go-on"):
            note(hanging=True)
            time.sleep(60)
        note(done=body)
    return {"batchItemFailures": failed}

def on_event(event, context):
    note(event=event, request_id=context.aws_request_id)
    if event.get("detail", {}).get("fail"):
        raise RuntimeError("as told")
'''


@dataclass
class Workbench:
    """An emulator, and what tests put into it."""

    emulator: Emulator
    folder: Path
    client: Callable[[str], Any]
    poller: PollerProcess

    @property
    def notes_path(self) -> Path:
        return self.folder / "notes.jsonl"

    def notes(self) -> list[dict[str, Any]]:
        if not self.notes_path.exists():
            return []
        return [json.loads(line) for line in self.notes_path.read_text().splitlines()]

    def add_function(self, name: str, handler: str, timeout_s: int = 5) -> str:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("small.py", HANDLER_SOURCE)
        s3 = self.client("s3")
        s3.create_bucket(Bucket=CODE_BUCKET)
        s3.put_object(Bucket=CODE_BUCKET, Key="small.zip", Body=buffer.getvalue())
        role = {"Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole"}]}
        iam = self.client("iam")
        arn = iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(role))["Role"]
        created = self.client("lambda").create_function(
            FunctionName=name,
            Runtime="python3.13",
            Role=arn["Arn"],
            Handler=f"small.{handler}",
            Timeout=timeout_s,
            Code={"S3Bucket": CODE_BUCKET, "S3Key": "small.zip"},
            Environment={"Variables": {"NOTES": str(self.notes_path)}},
        )
        return str(created["FunctionArn"])

    def add_queue(self, name: str, visibility_s: int = 30, **attributes: str) -> tuple[str, str]:
        sqs = self.client("sqs")
        settings = {"VisibilityTimeout": str(visibility_s), **attributes}
        url = sqs.create_queue(QueueName=name, Attributes=settings)["QueueUrl"]
        found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
        return url, found["Attributes"]["QueueArn"]

    def feed(self, function: str, queue_arn: str, batch_size: int = 10, **settings: Any) -> None:
        self.client("lambda").create_event_source_mapping(
            FunctionName=function,
            EventSourceArn=queue_arn,
            BatchSize=batch_size,
            FunctionResponseTypes=["ReportBatchItemFailures"],
            **settings,
        )

    def send(self, url: str, *bodies: str) -> None:
        entries = [{"Id": str(i), "MessageBody": body} for i, body in enumerate(bodies)]
        self.client("sqs").send_message_batch(QueueUrl=url, Entries=entries)

    def count(self, url: str) -> int:
        """Messages in a queue, hidden ones too."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=names)
        return sum(int(found["Attributes"][name]) for name in names)

    def receive(self, url: str) -> list[dict[str, Any]]:
        received = self.client("sqs").receive_message(
            QueueUrl=url,
            MaxNumberOfMessages=10,
            MessageSystemAttributeNames=["All"],
            MessageAttributeNames=["All"],
        )
        messages: list[dict[str, Any]] = received.get("Messages", [])
        return messages

    def bodies(self, url: str) -> list[dict[str, Any]]:
        return [json.loads(message["Body"]) for message in self.receive(url)]

    def subscribe(self, name: str, pattern: dict[str, Any], target: dict[str, Any]) -> None:
        events = self.client("events")
        events.put_rule(Name=name, EventPattern=json.dumps(pattern))
        events.put_targets(Rule=name, Targets=[{"Id": "1", **target}])

    def put_event(self, source: str, detail_type: str, detail: dict[str, Any]) -> None:
        entry = {"Source": source, "DetailType": detail_type, "Detail": json.dumps(detail)}
        assert self.client("events").put_events(Entries=[entry])["FailedEntryCount"] == 0

    @staticmethod
    def wait_until(condition: Callable[[], Any], limit_s: float = 20) -> Any:
        ends = time.monotonic() + limit_s
        while not (value := condition()):
            assert time.monotonic() < ends, "the condition was not met in time"
            time.sleep(0.01)
        return value


@pytest.fixture(scope="session")
def emulator() -> Iterator[Emulator]:
    running = Emulator()
    yield running
    running.stop()


@pytest.fixture
def bench(tmp_path: Path, emulator: Emulator) -> Iterator[Workbench]:
    emulator.reset()
    client = client_factory(emulator.endpoint_url)
    poller = PollerProcess(emulator.endpoint_url, tmp_path, retry_delay_s=0)
    yield Workbench(emulator, tmp_path, client, poller)
    poller.kill()
