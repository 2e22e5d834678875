"""Failing services, as a client of the SDK meets them; and how many requests fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError

from infra.local.emulator import Emulator, WsgiApplication
from infra.local.service_environment import CREDENTIAL, REGION
from tests.soak.faults import LASTING, SERVICES, Fault, FaultyServices, Misfortune, Request

FUNCTION = "SomeFunction"
BUCKET, TABLE = "bucket", "table"


class Script:
    """Lets the next requests of functions fail as a test says."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.seen: list[Request] = []

    def fault_of(self, request: Request) -> Fault | None:
        self.seen.append(request)
        return self.faults.pop(0) if self.faults else None


@pytest.fixture(scope="module")
def script() -> Script:
    return Script()


@pytest.fixture(scope="module")
def client(script: Script) -> Iterator[Callable[..., Any]]:
    """Makes clients of services that fail, for a function unless told otherwise."""

    def faulty(application: WsgiApplication) -> WsgiApplication:
        return FaultyServices(application, script)

    emulator = Emulator(faulty)

    def make(service: str, *, attempts: int = 1, key: str = FUNCTION) -> Any:
        return boto3.client(
            service,
            endpoint_url=emulator.endpoint_url,
            region_name=REGION,
            aws_access_key_id=key,
            aws_secret_access_key=key,
            config=Config(proxies={}, retries={"mode": "standard", "total_max_attempts": attempts}),
        )

    make("s3", key=CREDENTIAL).create_bucket(Bucket=BUCKET)
    make("dynamodb", key=CREDENTIAL).create_table(
        TableName=TABLE,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    yield make
    emulator.stop()


def put(client: Callable[..., Any], service: str, name: str, **options: Any) -> Any:
    """Ask a service to keep something."""
    if service == "s3":
        return client("s3", **options).put_object(Bucket=BUCKET, Key=name, Body=b"content")
    if service == "dynamodb":
        return client("dynamodb", **options).put_item(TableName=TABLE, Item={"id": {"S": name}})
    entry = {"Source": "test", "DetailType": name, "Detail": "{}"}
    return client("events", **options).put_events(Entries=[entry])


def is_kept(client: Callable[..., Any], service: str, name: str) -> bool:
    if service == "s3":
        listed = client("s3", key=CREDENTIAL).list_objects_v2(Bucket=BUCKET, Prefix=name)
        return bool(listed["KeyCount"])
    found = client("dynamodb", key=CREDENTIAL).get_item(TableName=TABLE, Key={"id": {"S": name}})
    return "Item" in found


@pytest.mark.parametrize(
    ("service", "fault", "code"),
    [
        ("s3", Fault.THROTTLED, "SlowDown"),
        ("s3", Fault.BROKEN, "InternalError"),
        ("s3", Fault.BROKEN_AFTERWARDS, "InternalError"),
        ("dynamodb", Fault.THROTTLED, "ProvisionedThroughputExceededException"),
        ("dynamodb", Fault.BROKEN, "InternalServerError"),
        ("dynamodb", Fault.BROKEN_AFTERWARDS, "InternalServerError"),
        ("events", Fault.THROTTLED, "ThrottlingException"),
        ("events", Fault.BROKEN, "InternalServerError"),
    ],
)
def test_errors_are_those_of_the_service(
    client: Callable[..., Any], script: Script, service: str, fault: Fault, code: str
) -> None:
    script.faults = [fault]
    name = f"{fault.name}-{service}"
    with pytest.raises(ClientError) as failed:
        put(client, service, name)
    assert failed.value.response["Error"]["Code"] == code
    if service != "events":
        assert is_kept(client, service, name) == fault.is_carried_out


@pytest.mark.parametrize("fault", [Fault.CUT_OFF, Fault.CUT_OFF_AFTERWARDS])
@pytest.mark.parametrize("service", ["s3", "dynamodb"])
def test_a_lost_connection(
    client: Callable[..., Any], script: Script, service: str, fault: Fault
) -> None:
    script.faults = [fault]
    with pytest.raises(ConnectionClosedError):
        put(client, service, fault.name)
    assert is_kept(client, service, fault.name) == fault.is_carried_out


def test_an_object_that_cannot_be_looked_at_has_no_text_of_an_error(
    client: Callable[..., Any], script: Script
) -> None:
    put(client, "s3", "looked-at")
    script.faults = [Fault.THROTTLED]
    with pytest.raises(ClientError, match="503"):
        client("s3").head_object(Bucket=BUCKET, Key="looked-at")
    assert client("s3").head_object(Bucket=BUCKET, Key="looked-at")["ContentLength"] == 7


def test_an_entry_may_be_refused_by_an_answer_of_success(
    client: Callable[..., Any], script: Script
) -> None:
    script.faults = [Fault.REFUSED_ENTRY]
    answer = put(client, "events", "refused")
    assert answer["FailedEntryCount"] == 1
    assert answer["Entries"][0]["ErrorCode"] == "InternalFailure"
    assert put(client, "events", "taken")["FailedEntryCount"] == 0


def test_attempts_at_one_call_are_known_as_such(client: Callable[..., Any], script: Script) -> None:
    script.faults = [Fault.BROKEN_AFTERWARDS]
    script.seen.clear()
    put(client, "dynamodb", "twice", attempts=2)
    first, second = script.seen
    assert first.call == second.call != ""
    assert (first.attempt, second.attempt) == (1, 2)


def test_others_are_left_alone(client: Callable[..., Any], script: Script) -> None:
    script.faults = [Fault.BROKEN]
    put(client, "s3", "of-a-training-job", key=CREDENTIAL)
    client("sqs").create_queue(QueueName="not-one-of-the-three")
    assert script.faults.pop() is Fault.BROKEN


def test_the_share_that_fails_is_the_one_asked_for() -> None:
    misfortune = Misfortune(3, 0.05)
    for call in range(20_000):
        service = SERVICES[call % 3]
        attempt = 1
        while attempt <= 4 and misfortune.fault_of(Request(service, str(call), attempt)):
            attempt += 1
    for counts in misfortune.counts.values():
        assert sum(counts.faults.values()) / counts.requests == pytest.approx(0.05, rel=0.2)
        assert any(fault.is_carried_out for fault in counts.faults)
    num_lasting = sum(counts.lasting for counts in misfortune.counts.values())
    assert num_lasting / 20_000 == pytest.approx(0.05 / (1 + 3 * LASTING) * LASTING, rel=0.4)
    assert Fault.REFUSED_ENTRY in misfortune.counts["events"].faults
    assert Fault.REFUSED_ENTRY not in misfortune.counts["s3"].faults


def test_a_lasting_fault_meets_every_attempt_at_a_call_and_no_other_call() -> None:
    misfortune = Misfortune(0, 0.5)
    call = 0
    while not misfortune.counts["s3"].lasting:
        call += 1
        fault = misfortune.fault_of(Request("s3", str(call)))
    again = [misfortune.fault_of(Request("s3", str(call), n)) for n in (2, 3, 4)]
    assert again == [fault] * 3
    others = [misfortune.fault_of(Request("s3", f"other {n}")) for n in range(20)]
    assert None in others


def test_a_seed_draws_the_same_faults_again() -> None:
    drawn = [
        [misfortune.fault_of(Request("events", str(n))) for n in range(300)]
        for misfortune in (Misfortune(5, 0.2), Misfortune(5, 0.2), Misfortune(6, 0.2))
    ]
    assert drawn[0] == drawn[1] != drawn[2]
