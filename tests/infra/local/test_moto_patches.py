"""Each gap of moto that is closed, seen through the server."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
from moto.events.models import Rule
from moto.sqs.models import Message, sqs_backends

from infra.local.asynchronous import queue_name
from infra.local.moto_patches import PATCHES, apply_patches
from infra.local.moto_patches.event_rules import run_schedules
from infra.local.service_environment import ACCOUNT_ID, REGION
from lambdas.contracts.events import (
    NATIVE_SOURCE,
    STATUS_DETAIL_TYPE,
    STATUS_SOURCE,
    issues_found_pattern,
)

ISSUES_FOUND = {"RuleConfigurationName": "R", "RuleEvaluationStatus": "IssuesFound"}
NO_ISSUES = {"RuleConfigurationName": "Q", "RuleEvaluationStatus": "NoIssuesFound"}


def test_patches_are_applied_once(bench: Any) -> None:
    before = Rule.send_to_targets
    apply_patches()
    assert Rule.send_to_targets is before
    assert all(patch.__doc__ and "Without it" in patch.__doc__ for patch in PATCHES)


@pytest.mark.parametrize(
    ("statuses", "matches"),
    [
        ([NO_ISSUES, ISSUES_FOUND], True),
        ([NO_ISSUES], False),
        ([], False),
        (None, False),
        (ISSUES_FOUND, True),
    ],
)
def test_patterns_look_into_arrays_of_objects(bench: Any, statuses: Any, matches: bool) -> None:
    url, arn = bench.add_queue("found")
    bench.subscribe("found", issues_found_pattern(), {"Arn": arn})
    detail = {"TrainingJobStatus": "InProgress", "DebugRuleEvaluationStatuses": statuses}
    bench.put_event(STATUS_SOURCE, STATUS_DETAIL_TYPE, detail)
    assert len(bench.bodies(url)) == int(matches)


def test_the_pattern_of_the_page_about_messages_takes_events_of_both(bench: Any) -> None:
    page = Path(__file__).parents[3] / "docs" / "how-to" / "notifications.md"
    block = page.read_text().partition('json title="pattern.json"\n')[2].partition("```")[0]
    url, arn = bench.add_queue("both")
    bench.subscribe("both", json.loads(block), {"Arn": arn})
    for source in (NATIVE_SOURCE, STATUS_SOURCE, "another"):
        bench.put_event(source, STATUS_DETAIL_TYPE, {"TrainingJobName": "job"})
    sources = [body["source"] for body in bench.bodies(url)]
    assert sources == [NATIVE_SOURCE, STATUS_SOURCE]


def test_one_element_must_match_all_of_the_pattern(bench: Any) -> None:
    url, arn = bench.add_queue("found")
    pattern = {"detail": {"items": {"a": [1], "b": [{"exists": False}]}, "$or": [{"k": ["x"]}]}}
    bench.subscribe("found", pattern, {"Arn": arn})
    bench.put_event("s", "t", {"k": "x", "items": [{"a": 1, "b": 2}, {"a": 2}]})
    assert bench.bodies(url) == []
    bench.put_event("s", "t", {"k": "x", "items": [{"a": 2}, {"a": 1}]})
    assert len(bench.bodies(url)) == 1


def test_disabled_rules_do_not_deliver(bench: Any) -> None:
    url, arn = bench.add_queue("work")
    bench.subscribe("off", {"source": ["s"]}, {"Arn": arn})
    bench.client("events").disable_rule(Name="off")
    bench.put_event("s", "t", {})
    assert bench.count(url) == 0
    bench.client("events").enable_rule(Name="off")
    bench.put_event("s", "t", {})
    assert bench.count(url) == 1


def test_a_target_that_fails_starves_no_other_and_goes_to_its_dead_letters(bench: Any) -> None:
    letters, letters_arn = bench.add_queue("letters")
    url, arn = bench.add_queue("work")
    gone = arn.replace(":work", ":gone")
    bench.subscribe("a", {"source": ["s"]}, {"Arn": gone})
    bench.subscribe("b", {"source": ["s"]}, {"Arn": gone, "DeadLetterConfig": {"Arn": letters_arn}})
    bench.subscribe("c", {"source": ["s"]}, {"Arn": arn})
    bench.subscribe("d", {"source": ["s"]}, {"Arn": arn})
    bench.put_event("s", "t", {"n": 1})
    assert [body["detail"] for body in bench.bodies(url)] == [{"n": 1}, {"n": 1}]
    (letter,) = bench.receive(letters)
    assert json.loads(letter["Body"])["detail"] == {"n": 1}
    assert letter["MessageAttributes"]["TARGET_ARN"]["StringValue"] == gone


def test_events_for_a_function_wait_in_its_queue(bench: Any) -> None:
    arn = bench.add_function("small", "on_event")
    bench.subscribe("a", {"source": ["s"]}, {"Arn": arn})
    bench.put_event("s", "t", {"n": 1})
    url = bench.client("sqs").get_queue_url(QueueName=queue_name("small"))["QueueUrl"]
    (event,) = bench.bodies(url)
    assert event["detail"] == {"n": 1}
    assert {"version", "id", "account", "time", "region", "resources"} <= set(event)


def test_names_of_asynchronous_queues_fit_and_differ() -> None:
    names = {queue_name("long-" * 13 + end) for end in ("AAAA", "BBBB")}
    assert len(names) == 2
    assert {len(name) for name in names} == {80}


def test_objects_send_events_as_s3_does(bench: Any) -> None:
    url, arn = bench.add_queue("work")
    s3 = bench.client("s3")
    s3.create_bucket(Bucket="tensors")
    s3.put_bucket_notification_configuration(
        Bucket="tensors", NotificationConfiguration={"EventBridgeConfiguration": {}}
    )
    reported = s3.get_bucket_notification_configuration(Bucket="tensors")
    assert reported["EventBridgeConfiguration"] == {}
    bench.subscribe("all", {"source": ["aws.s3"]}, {"Arn": arn})
    tag = s3.put_object(Bucket="tensors", Key="a b", Body=b"12345")["ETag"]
    s3.put_object(Bucket="tensors", Key="c", Body=b"")
    first, second = bench.bodies(url)
    assert first["detail-type"] == "Object Created"
    assert first["detail"]["bucket"] == {"name": "tensors"}
    assert first["detail"]["reason"] == "PutObject"
    described = first["detail"]["object"]
    assert {k: described[k] for k in ("key", "size", "etag")} == {
        "key": "a b",
        "size": 5,
        "etag": tag.strip('"'),
    }
    assert "version-id" not in described
    assert first["id"] != second["id"]
    assert described["sequencer"] < second["detail"]["object"]["sequencer"]
    s3.copy_object(Bucket="tensors", Key="d", CopySource={"Bucket": "tensors", "Key": "c"})
    s3.put_object_tagging(
        Bucket="tensors", Key="c", Tagging={"TagSet": [{"Key": "k", "Value": "v"}]}
    )
    reasons = [(body["detail-type"], body["detail"].get("reason")) for body in bench.bodies(url)]
    assert reasons == [("Object Created", "CopyObject"), ("Object Tags Added", None)]


CODE = {"S3Bucket": "code", "S3Key": "small.zip"}
QUEUE_ARN = f"arn:aws:sqs:{REGION}:{ACCOUNT_ID}:failures"
ON_FAILURE = {"OnFailure": {"Destination": QUEUE_ARN}}
LOUD = {"EventBridgeConfiguration": {"EventBridgeEnabled": True}}
FUNCTION = {"Fn::GetAtt": ["Function", "Arn"]}
STACK = {
    "Bucket": ("AWS::S3::Bucket", {"BucketName": "loud", "NotificationConfiguration": LOUD}),
    "Silent": ("AWS::S3::Bucket", {"BucketName": "silent"}),
    "Policy": ("AWS::S3::BucketPolicy", {"Bucket": "loud", "PolicyDocument": {}}),
    "Registry": ("AWS::EventSchemas::Registry", {"RegistryName": "r"}),
    "Topic": ("AWS::SNS::Topic", {}),
    "Mail": ("AWS::SNS::Subscription", {"Protocol": "email", "TopicArn": {"Ref": "Topic"}}),
    "Key": ("AWS::KMS::Key", {"KeyPolicy": {}, "Tags": [{"Key": "stage", "Value": "dev"}]}),
    "Schema": (
        "AWS::EventSchemas::Schema",
        {"RegistryName": {"Ref": "Registry"}, "Type": "JSONSchemaDraft4", "Content": "{}"},
    ),
    "EachMinute": (
        "AWS::Events::Rule",
        {
            "ScheduleExpression": "rate(1 minute)",
            "Targets": [{"Id": "1", "Arn": FUNCTION}],
        },
    ),
    "WithInput": (
        "AWS::Events::Rule",
        {
            "ScheduleExpression": "rate(1 minute)",
            "Targets": [{"Id": "1", "Arn": FUNCTION, "Input": '{"due": 1}'}],
        },
    ),
    "Off": (
        "AWS::Events::Rule",
        {
            "ScheduleExpression": "rate(1 minute)",
            "State": "DISABLED",
            "Targets": [{"Id": "1", "Arn": FUNCTION}],
        },
    ),
    "Layer": ("AWS::Lambda::LayerVersion", {"Content": CODE}),
    "Function": (
        "AWS::Lambda::Function",
        {
            "Code": CODE,
            "Role": f"arn:aws:iam::{ACCOUNT_ID}:role/small",
            "Runtime": "python3.13",
            "Handler": "small.on_event",
            "Layers": [{"Ref": "Layer"}],
            "Architectures": ["arm64"],
        },
    ),
    "Retries": (
        "AWS::Lambda::EventInvokeConfig",
        {
            "FunctionName": {"Ref": "Function"},
            "Qualifier": "$LATEST",
            "MaximumRetryAttempts": 0,
            "DestinationConfig": ON_FAILURE,
        },
    ),
}


@pytest.fixture
def function_name(bench: Any) -> str:
    """Name of the function of a stack with everything that moto's own stacks lack."""
    bench.add_queue("failures")
    bench.add_function("small", "on_event")  # uploads the code, and makes the role
    resources = {
        name: {"Type": kind, "Properties": properties} for name, (kind, properties) in STACK.items()
    }
    outputs = {
        "Name": {"Value": {"Ref": "Function"}},
        "SchemaArn": {"Value": {"Fn::GetAtt": ["Schema", "SchemaArn"]}},
    }
    template = {"Resources": resources, "Outputs": outputs}
    formation = bench.client("cloudformation")
    formation.create_stack(StackName="s", TemplateBody=json.dumps(template))
    (stack,) = formation.describe_stacks(StackName="s")["Stacks"]
    assert stack["StackStatus"] == "CREATE_COMPLETE"
    found = {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}
    assert found["SchemaArn"].startswith("arn:aws:schemas:")
    return str(found["Name"])


def test_functions_of_a_stack_have_their_layers_and_code(bench: Any, function_name: str) -> None:
    functions = bench.client("lambda")
    described = functions.get_function(FunctionName=function_name)
    assert described["Code"]["Location"] == "s3://code/small.zip"
    assert described["Configuration"]["Architectures"] == ["arm64"]
    (layer,) = described["Configuration"]["Layers"]
    layer_name, _, version = layer["Arn"].rpartition(":")
    found = functions.get_layer_version(LayerName=layer_name, VersionNumber=int(version))
    assert found["Content"]["Location"] == "s3://code/small.zip"


def test_functions_of_a_stack_have_their_retries(bench: Any, function_name: str) -> None:
    functions = bench.client("lambda")
    retries = functions.get_function_event_invoke_config(FunctionName=function_name)
    assert (retries["MaximumRetryAttempts"], retries["DestinationConfig"]) == (0, ON_FAILURE)


def test_buckets_of_a_stack_send_events(bench: Any, function_name: str) -> None:
    bench.subscribe("objects", {"source": ["aws.s3"]}, {"Arn": QUEUE_ARN})
    for bucket in ("silent", "loud"):
        bench.client("s3").put_object(Bucket=bucket, Key="k", Body=b"")
    url = bench.client("sqs").get_queue_url(QueueName="failures")["QueueUrl"]
    assert [body["detail"]["bucket"]["name"] for body in bench.bodies(url)] == ["loud"]


def test_resources_without_effect_are_listed(bench: Any, function_name: str) -> None:
    listed = bench.client("cloudformation").describe_stack_resources(StackName="s")
    assert {r["LogicalResourceId"] for r in listed["StackResources"]} == set(STACK)


def test_keys_of_a_stack_have_their_tags(bench: Any, function_name: str) -> None:
    kms = bench.client("kms")
    (key,) = kms.list_keys()["Keys"]
    tags = kms.list_resource_tags(KeyId=key["KeyId"])["Tags"]
    assert tags == [{"TagKey": "stage", "TagValue": "dev"}]


def test_schedules_run_when_they_are_told_to_and_at_no_event(
    bench: Any, function_name: str
) -> None:
    bench.put_event("s", "t", {"n": 1})
    queues = bench.client("sqs").list_queues(QueueNamePrefix="lambda-async-")
    assert not queues.get("QueueUrls"), "a rule of a schedule has no pattern, and matches nothing"
    run_schedules(ACCOUNT_ID, REGION)
    (url,) = bench.client("sqs").list_queues(QueueNamePrefix="lambda-async-")["QueueUrls"]
    first, second = sorted(bench.bodies(url), key=len)
    assert (first, second["detail-type"]) == ({"due": 1}, "Scheduled Event")
    assert "EachMinute" in second["resources"][0]


def test_messages_wait_for_the_poller(bench: Any) -> None:
    bench.add_function("small", "on_messages")
    url, arn = bench.add_queue("work")
    bench.feed("small", arn)
    bench.send(url, "a")
    (message,) = bench.receive(url)
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"


def test_a_long_poll_of_a_dead_consumer_takes_no_message(bench: Any) -> None:
    url, _ = bench.add_queue("work", visibility_s=60)
    program = """if True:
        import sys
        from infra.local.service_environment import client_factory
        sqs = client_factory(sys.argv[1])("sqs")
        print("waits", flush=True)
        sqs.receive_message(QueueUrl=sys.argv[2], WaitTimeSeconds=20)
    """
    endpoint = bench.emulator.endpoint_url
    consumer = subprocess.Popen([sys.executable, "-c", program, endpoint, url], stdout=PIPE)
    assert consumer.stdout is not None
    consumer.stdout.readline()
    (queue,) = sqs_backends[ACCOUNT_ID][REGION].queues.values()
    bench.wait_until(lambda: queue._messages_lock._waiters)
    consumer.kill()
    consumer.communicate()
    bench.send(url, "a")
    received = bench.client("sqs").receive_message(QueueUrl=url, WaitTimeSeconds=2)
    assert len(received["Messages"]) == 1


def test_a_deletion_loses_nothing_that_others_send_and_brings_nothing_back(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, _ = bench.add_queue("work")
    bench.send(url, "a", "b")
    first, second = sorted(bench.receive(url), key=lambda message: message["Body"])
    queue = sqs_backends[ACCOUNT_ID][REGION].queues["work"]
    had_handle = Message.had_receipt_handle
    others: list[threading.Thread] = []
    looks: list[str] = []

    def in_between(message: Any, handle: str) -> bool:
        """Let somebody else delete the second message, and send a third, at the last look."""
        looks.append(message.body)
        if looks == ["a", "a", "b"]:
            others.append(threading.Thread(target=queue.delete_message, args=(second_handle,)))
            others.append(threading.Thread(target=bench.send, args=(url, "c")))
            for thread in others:
                thread.start()
                thread.join(0.5)
        return bool(had_handle(message, handle))

    second_handle = second["ReceiptHandle"]
    monkeypatch.setattr(Message, "had_receipt_handle", in_between)
    queue.delete_message(first["ReceiptHandle"])
    for thread in others:
        thread.join(10)
    assert len(others) == 2
    assert [message.body for message in queue._messages] == ["c"]


def test_to_receive_of_a_long_queue_is_to_count_it_once(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, _ = bench.add_queue("work", MessageRetentionPeriod="60")
    bench.send(url, *map(str, range(10)))
    counted: list[Any] = []
    visible = Message.visible.fget

    def counting(message: Any) -> Any:
        counted.append(message)
        return visible(message)

    monkeypatch.setattr(Message, "visible", property(counting))
    assert len(bench.receive(url)) == 10
    assert len(counted) <= 3 * 10
    monkeypatch.setattr(time, "time", lambda: 10**10)
    assert bench.receive(url) == []
