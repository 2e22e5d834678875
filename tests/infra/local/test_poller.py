"""The poller process against the emulator, with small functions of the tests' own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from infra.local.asynchronous import queue_name
from infra.local.event_source import failed_identifiers, to_record

TARGET_EVENT = "deployment changed"


def done(bench: Any) -> list[str]:
    return [note["done"] for note in bench.notes() if "done" in note]


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_messages_reach_the_function_as_on_lambda(bench: Any) -> None:
    arn = bench.add_function("small", "on_messages")
    url, queue_arn = bench.add_queue("work")
    bench.feed("small", queue_arn)
    bench.client("sqs").send_message(
        QueueUrl=url,
        MessageBody="a",
        MessageAttributes={"kind": {"DataType": "String", "StringValue": "b"}},
    )
    bench.poller.start()
    bench.wait_until(lambda: done(bench) == ["a"] and bench.count(url) == 0)
    first = bench.notes()[0]
    (record,) = first["event"]["Records"]
    assert set(record) == {
        "messageId",
        "receiptHandle",
        "body",
        "attributes",
        "messageAttributes",
        "md5OfBody",
        "eventSource",
        "eventSourceARN",
        "awsRegion",
    }
    assert (record["eventSource"], record["eventSourceARN"]) == ("aws:sqs", queue_arn)
    assert record["attributes"]["ApproximateReceiveCount"] == "1"
    assert record["messageAttributes"]["kind"]["stringValue"] == "b"
    assert 0 < first["remaining_ms"] <= 5000
    assert first["initialization_type"] == "on-demand"
    assert arn.endswith(":function:small")


def test_only_failed_messages_stay(bench: Any) -> None:
    bench.add_function("small", "on_messages")
    url, queue_arn = bench.add_queue("work", visibility_s=60)
    bench.feed("small", queue_arn)
    bench.send(url, "a", "fail", "b")
    bench.poller.start()
    bench.wait_until(lambda: sorted(done(bench)) == ["a", "b", "fail"] and bench.count(url) == 1)
    (call,) = [note["event"] for note in bench.notes() if "event" in note]
    assert len(call["Records"]) == 3


def test_batches_are_no_larger_than_the_mapping_says(bench: Any) -> None:
    bench.add_function("small", "on_messages")
    url, queue_arn = bench.add_queue("work")
    bench.feed("small", queue_arn, batch_size=2)
    bench.send(url, "a", "b", "c", "d", "e")
    bench.poller.start()
    bench.wait_until(lambda: len(done(bench)) == 5)
    sizes = [len(note["event"]["Records"]) for note in bench.notes() if "event" in note]
    assert sorted(sizes) == [1, 2, 2]


def test_a_window_fills_batches_beyond_one_receive(bench: Any) -> None:
    bench.add_function("small", "on_messages")
    url, queue_arn = bench.add_queue("work")
    bench.feed("small", queue_arn, batch_size=12, MaximumBatchingWindowInSeconds=5)
    bench.send(url, *map(str, range(6)))
    bench.send(url, *map(str, range(6, 12)))
    bench.poller.start()
    bench.wait_until(lambda: len(done(bench)) == 12)
    (call,) = [note["event"] for note in bench.notes() if "event" in note]
    assert len(call["Records"]) == 12


def test_what_always_fails_ends_in_the_dead_letters(bench: Any) -> None:
    bench.add_function("small", "on_messages")
    letters, letters_arn = bench.add_queue("letters")
    redrive = json.dumps({"deadLetterTargetArn": letters_arn, "maxReceiveCount": 2})
    url, queue_arn = bench.add_queue("work", visibility_s=0, RedrivePolicy=redrive)
    bench.feed("small", queue_arn)
    bench.send(url, "raise")
    bench.poller.start()
    bench.wait_until(lambda: bench.count(letters) == 1)
    assert len([note for note in bench.notes() if "event" in note]) == 2


def test_a_crash_fails_the_batch_and_gets_a_new_process(bench: Any) -> None:
    bench.add_function("small", "on_messages")
    letters, letters_arn = bench.add_queue("letters")
    redrive = json.dumps({"deadLetterTargetArn": letters_arn, "maxReceiveCount": 1})
    url, queue_arn = bench.add_queue("work", visibility_s=0, RedrivePolicy=redrive)
    bench.feed("small", queue_arn)
    bench.send(url, "crash")
    bench.poller.start()
    bench.wait_until(lambda: bench.count(letters) == 1)
    bench.send(url, "a")
    bench.wait_until(lambda: done(bench) == ["a"])
    assert len({note["pid"] for note in bench.notes()}) == 2


def test_an_invocation_is_cut_off_at_the_functions_timeout(bench: Any) -> None:
    bench.add_function("small", "on_messages", timeout_s=1)
    url, queue_arn = bench.add_queue("work", visibility_s=0)
    bench.feed("small", queue_arn)
    bench.send(url, "hang")
    bench.poller.start()
    hanging = bench.wait_until(lambda: [n for n in bench.notes() if "hanging" in n])
    Path(f"{bench.notes_path}.go-on").touch()
    bench.wait_until(lambda: done(bench) == ["hang"])
    assert not lives(hanging[0]["pid"])
    assert "timed out after 1.00 seconds" in (bench.folder / "poller.log").read_text()


def test_killed_in_the_middle_of_a_batch_nothing_is_lost(bench: Any) -> None:
    bench.add_function("small", "on_messages")
    url, queue_arn = bench.add_queue("work", visibility_s=1)
    bench.feed("small", queue_arn)
    bench.send(url, "a", "hang", "b")
    bench.poller.start()
    hanging = bench.wait_until(lambda: [n for n in bench.notes() if "hanging" in n])
    bench.poller.kill()
    bench.wait_until(lambda: not lives(hanging[0]["pid"]))
    assert bench.count(url) == 3
    Path(f"{bench.notes_path}.go-on").touch()
    bench.poller.start()
    bench.wait_until(lambda: bench.count(url) == 0)
    assert {"a", "hang", "b"} <= set(done(bench))


@pytest.fixture
def on_event(bench: Any) -> tuple[Any, str]:
    """An event rule with a function that retries once, and the queue of its failures."""
    arn = bench.add_function("reacting", "on_event")
    failures, failures_arn = bench.add_queue("failures")
    bench.client("lambda").put_function_event_invoke_config(
        FunctionName="reacting",
        MaximumRetryAttempts=1,
        DestinationConfig={"OnFailure": {"Destination": failures_arn}},
    )
    events = bench.client("events")
    events.put_rule(Name="changes", EventPattern=json.dumps({"detail-type": [TARGET_EVENT]}))
    events.put_targets(Rule="changes", Targets=[{"Id": "1", "Arn": arn}])
    return bench, failures


def put(bench: Any, detail: dict[str, Any]) -> None:
    entry = {"Source": "test", "DetailType": TARGET_EVENT, "Detail": json.dumps(detail)}
    answer = bench.client("events").put_events(Entries=[entry])
    assert answer["FailedEntryCount"] == 0


def test_events_wait_for_the_poller_and_reach_the_function(on_event: tuple[Any, str]) -> None:
    bench, failures = on_event
    put(bench, {"number": 1})
    bench.poller.start()
    bench.wait_until(lambda: len(bench.notes()) == 1)
    event = bench.notes()[0]["event"]
    assert event["detail"] == {"number": 1}
    assert (event["source"], event["detail-type"]) == ("test", TARGET_EVENT)
    assert event["time"].endswith("Z")
    assert "ingestion-time" not in event
    assert bench.count(failures) == 0


def test_failed_events_are_retried_then_reported(on_event: tuple[Any, str]) -> None:
    bench, failures = on_event
    bench.poller.start()
    put(bench, {"fail": True})
    bench.wait_until(lambda: bench.count(failures) == 1)
    assert len(bench.notes()) == 2
    (message,) = bench.receive(failures)
    record = json.loads(message["Body"])
    assert record["requestContext"]["condition"] == "RetriesExhausted"
    assert record["requestContext"]["approximateInvokeCount"] == 2
    assert record["requestPayload"]["detail"] == {"fail": True}
    assert record["responsePayload"]["errorMessage"] == "as told"


def test_an_unforeseen_error_is_reported_and_does_not_end_the_polling(
    on_event: tuple[Any, str],
) -> None:
    bench, _ = on_event
    bench.poller.start()
    sqs = bench.client("sqs")
    url = sqs.get_queue_url(QueueName=queue_name("reacting"))["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="no event at all")
    log = bench.folder / "poller.log"
    bench.wait_until(lambda: "json.decoder.JSONDecodeError" in log.read_text())
    assert "Traceback" in log.read_text()
    put(bench, {"number": 1})
    bench.wait_until(lambda: [note["event"]["detail"] for note in bench.notes()] == [{"number": 1}])


def test_poller_and_functions_end_with_their_parent(bench: Any) -> None:
    bench.add_function("small", "on_messages")
    url, queue_arn = bench.add_queue("work")
    bench.feed("small", queue_arn)
    bench.send(url, "hang")
    program = """if True:
        import sys
        from pathlib import Path
        from infra.local.poller_process import PollerProcess
        poller = PollerProcess(sys.argv[1], Path(sys.argv[2]))
        poller.start()
        print(poller._process.pid, flush=True)
        sys.stdin.read()
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", program, bench.emulator.endpoint_url, str(bench.folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    poller_pid = int(parent.stdout.readline())
    hanging = bench.wait_until(lambda: [n for n in bench.notes() if "hanging" in n])
    assert lives(poller_pid)
    parent.kill()
    parent.communicate()
    bench.wait_until(lambda: not lives(poller_pid), 5)
    bench.wait_until(lambda: not lives(hanging[0]["pid"]), 5)


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (None, set()),
        ({}, set()),
        ({"batchItemFailures": None}, set()),
        ({"batchItemFailures": []}, set()),
        ({"batchItemFailures": [{"itemIdentifier": "a"}]}, {"a"}),
        ({"batchItemFailures": [{"itemIdentifier": ""}]}, None),
        ({"batchItemFailures": [{"itemIdentifier": None}]}, None),
        ({"batchItemFailures": [{"itemIdentifier": "unknown"}]}, None),
        ({"batchItemFailures": [{"wrong": "a"}]}, None),
        ({"batchItemFailures": ["a"]}, None),
        ({"batchItemFailures": "a"}, None),
        ("text", None),
    ],
)
def test_reports_of_failures_are_read_as_lambda_does(payload: Any, expected: Any) -> None:
    assert failed_identifiers(payload, {"a", "b"}) == expected


def test_record_without_attributes() -> None:
    message = {"MessageId": "1", "ReceiptHandle": "h", "Body": "b", "MD5OfBody": "m"}
    record = to_record(message, "arn:aws:sqs:eu-west-1:1:q")
    assert record["messageAttributes"] == {}
    assert record["awsRegion"] == "eu-west-1"
