"""Each gap of moto that is closed, seen through the server."""

from __future__ import annotations

import json
import subprocess
import sys
from subprocess import PIPE
from typing import Any

import pytest
from botocore.exceptions import ClientError
from moto.events.models import Rule
from moto.sqs.models import sqs_backends

from infra.local.asynchronous_queue import queue_name
from infra.local.moto_patches import PATCHES, apply_patches
from infra.local.moto_patches.training_jobs import finish_training_job
from infra.local.service_environment import ACCOUNT_ID, REGION
from lambdas.contracts.events import (
    NATIVE_SOURCE,
    STATUS_DETAIL_TYPE,
    STATUS_SOURCE,
    issues_found_pattern,
)

ISSUES_FOUND = {"RuleConfigurationName": "R", "RuleEvaluationStatus": "IssuesFound"}
NO_ISSUES = {"RuleConfigurationName": "Q", "RuleEvaluationStatus": "NoIssuesFound"}


def subscribe(bench: Any, name: str, pattern: dict[str, Any], target: dict[str, Any]) -> None:
    events = bench.client("events")
    events.put_rule(Name=name, EventPattern=json.dumps(pattern))
    events.put_targets(Rule=name, Targets=[{"Id": "1", **target}])


def put_event(bench: Any, source: str, detail_type: str, detail: dict[str, Any]) -> None:
    entry = {"Source": source, "DetailType": detail_type, "Detail": json.dumps(detail)}
    assert bench.client("events").put_events(Entries=[entry])["FailedEntryCount"] == 0


def bodies(bench: Any, url: str) -> list[dict[str, Any]]:
    return [json.loads(message["Body"]) for message in bench.receive(url)]


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
    subscribe(bench, "found", issues_found_pattern(), {"Arn": arn})
    detail = {"TrainingJobStatus": "InProgress", "DebugRuleEvaluationStatuses": statuses}
    put_event(bench, STATUS_SOURCE, STATUS_DETAIL_TYPE, detail)
    assert len(bodies(bench, url)) == int(matches)


def test_one_element_must_match_all_of_the_pattern(bench: Any) -> None:
    url, arn = bench.add_queue("found")
    pattern = {"detail": {"items": {"a": [1], "b": [{"exists": False}]}, "$or": [{"k": ["x"]}]}}
    subscribe(bench, "found", pattern, {"Arn": arn})
    put_event(bench, "s", "t", {"k": "x", "items": [{"a": 1, "b": 2}, {"a": 2}]})
    assert bodies(bench, url) == []
    put_event(bench, "s", "t", {"k": "x", "items": [{"a": 2}, {"a": 1}]})
    assert len(bodies(bench, url)) == 1


def test_disabled_rules_do_not_deliver(bench: Any) -> None:
    url, arn = bench.add_queue("work")
    subscribe(bench, "off", {"source": ["s"]}, {"Arn": arn})
    bench.client("events").disable_rule(Name="off")
    put_event(bench, "s", "t", {})
    assert bench.count(url) == 0
    bench.client("events").enable_rule(Name="off")
    put_event(bench, "s", "t", {})
    assert bench.count(url) == 1


def test_a_target_that_fails_starves_no_other_and_goes_to_its_dead_letters(bench: Any) -> None:
    letters, letters_arn = bench.add_queue("letters")
    url, arn = bench.add_queue("work")
    gone = arn.replace(":work", ":gone")
    subscribe(bench, "a", {"source": ["s"]}, {"Arn": gone})
    subscribe(
        bench, "b", {"source": ["s"]}, {"Arn": gone, "DeadLetterConfig": {"Arn": letters_arn}}
    )
    subscribe(bench, "c", {"source": ["s"]}, {"Arn": arn})
    subscribe(bench, "d", {"source": ["s"]}, {"Arn": arn})
    put_event(bench, "s", "t", {"n": 1})
    assert [body["detail"] for body in bodies(bench, url)] == [{"n": 1}, {"n": 1}]
    (letter,) = bench.receive(letters)
    assert json.loads(letter["Body"])["detail"] == {"n": 1}
    assert letter["MessageAttributes"]["TARGET_ARN"]["StringValue"] == gone


def test_events_for_a_function_wait_in_its_queue(bench: Any) -> None:
    arn = bench.add_function("small", "on_event")
    subscribe(bench, "a", {"source": ["s"]}, {"Arn": arn})
    put_event(bench, "s", "t", {"n": 1})
    url = bench.client("sqs").get_queue_url(QueueName=queue_name("small"))["QueueUrl"]
    (event,) = bodies(bench, url)
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
    subscribe(bench, "all", {"source": ["aws.s3"]}, {"Arn": arn})
    tag = s3.put_object(Bucket="tensors", Key="a b", Body=b"12345")["ETag"]
    s3.put_object(Bucket="tensors", Key="c", Body=b"")
    first, second = bodies(bench, url)
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
    reasons = [(body["detail-type"], body["detail"].get("reason")) for body in bodies(bench, url)]
    assert reasons == [("Object Created", "CopyObject"), ("Object Tags Added", None)]


def test_stack_creates_what_the_template_says(bench: Any) -> None:
    url, queue_arn = bench.add_queue("failures")
    bench.add_function("unused", "on_event")  # its code is what the stack's functions use
    code = {"S3Bucket": "code", "S3Key": "small.zip"}
    role = f"arn:aws:iam::{ACCOUNT_ID}:role/unused"
    function = {"Code": code, "Role": role, "Runtime": "python3.13", "Handler": "small.on_event"}
    destination = {"OnFailure": {"Destination": queue_arn}}
    resources = {
        "Bucket": (
            "AWS::S3::Bucket",
            {
                "BucketName": "loud",
                "NotificationConfiguration": {
                    "EventBridgeConfiguration": {"EventBridgeEnabled": True}
                },
            },
        ),
        "Silent": ("AWS::S3::Bucket", {"BucketName": "silent"}),
        "Layer": ("AWS::Lambda::LayerVersion", {"Content": code}),
        "Function": (
            "AWS::Lambda::Function",
            {**function, "Layers": [{"Ref": "Layer"}], "Architectures": ["arm64"]},
        ),
        "Retries": (
            "AWS::Lambda::EventInvokeConfig",
            {
                "FunctionName": {"Ref": "Function"},
                "Qualifier": "$LATEST",
                "MaximumRetryAttempts": 0,
                "DestinationConfig": destination,
            },
        ),
        "Policy": ("AWS::S3::BucketPolicy", {"Bucket": "loud", "PolicyDocument": {}}),
    }
    template = {
        "Resources": {
            name: {"Type": kind, "Properties": properties}
            for name, (kind, properties) in resources.items()
        },
        "Outputs": {"Function": {"Value": {"Ref": "Function"}}},
    }
    formation = bench.client("cloudformation")
    formation.create_stack(StackName="s", TemplateBody=json.dumps(template))
    (stack,) = formation.describe_stacks(StackName="s")["Stacks"]
    assert stack["StackStatus"] == "CREATE_COMPLETE"
    listed = formation.describe_stack_resources(StackName="s")["StackResources"]
    assert {resource["LogicalResourceId"] for resource in listed} == set(resources)

    functions = bench.client("lambda")
    name = stack["Outputs"][0]["OutputValue"]
    described = functions.get_function(FunctionName=name)
    assert described["Code"]["Location"] == "s3://code/small.zip"
    assert described["Configuration"]["Architectures"] == ["arm64"]
    (layer,) = described["Configuration"]["Layers"]
    layer_name, _, version = layer["Arn"].rpartition(":")
    content = functions.get_layer_version(LayerName=layer_name, VersionNumber=int(version))
    assert content["Content"]["Location"] == "s3://code/small.zip"
    retries = functions.get_function_event_invoke_config(FunctionName=name)
    assert (retries["MaximumRetryAttempts"], retries["DestinationConfig"]) == (0, destination)

    subscribe(bench, "objects", {"source": ["aws.s3"]}, {"Arn": queue_arn})
    for bucket in ("silent", "loud"):
        bench.client("s3").put_object(Bucket=bucket, Key="k", Body=b"")
    assert [body["detail"]["bucket"]["name"] for body in bodies(bench, url)] == ["loud"]


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


def create_job(bench: Any, name: str = "job") -> Any:
    sagemaker = bench.client("sagemaker")
    sagemaker.create_training_job(
        TrainingJobName=name,
        AlgorithmSpecification={"TrainingImage": "i", "TrainingInputMode": "File"},
        RoleArn=f"arn:aws:iam::{ACCOUNT_ID}:role/training",
        OutputDataConfig={"S3OutputPath": "s3://tensors/"},
        ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
        StoppingCondition={"MaxRuntimeInSeconds": 60},
    )
    return sagemaker


def job_status(sagemaker: Any) -> tuple[str, str]:
    described = sagemaker.describe_training_job(TrainingJobName="job")
    return described["TrainingJobStatus"], described["SecondaryStatus"]


@pytest.mark.parametrize(("exit_code", "status"), [(0, "Completed"), (1, "Failed")])
def test_a_job_runs_until_it_is_finished(bench: Any, exit_code: int, status: str) -> None:
    sagemaker = create_job(bench)
    assert job_status(sagemaker) == ("InProgress", "Training")
    assert "TrainingEndTime" not in sagemaker.describe_training_job(TrainingJobName="job")
    assert finish_training_job(ACCOUNT_ID, REGION, "job", exit_code) == status
    assert job_status(sagemaker) == (status, status)
    assert "TrainingEndTime" in sagemaker.describe_training_job(TrainingJobName="job")
    with pytest.raises(ValueError, match=f"it is {status}"):
        finish_training_job(ACCOUNT_ID, REGION, "job", 0)
    with pytest.raises(ClientError, match=f"the training job is in status {status}\\."):
        sagemaker.stop_training_job(TrainingJobName="job")


def test_a_job_is_stopped(bench: Any) -> None:
    url, arn = bench.add_queue("changes")
    subscribe(bench, "changes", {"source": [NATIVE_SOURCE]}, {"Arn": arn})
    sagemaker = create_job(bench)
    sagemaker.stop_training_job(TrainingJobName="job")
    sagemaker.stop_training_job(TrainingJobName="job")
    assert job_status(sagemaker) == ("Stopping", "Stopping")
    assert finish_training_job(ACCOUNT_ID, REGION, "job", 1) == "Stopped"
    with pytest.raises(ClientError) as caught:
        sagemaker.stop_training_job(TrainingJobName="job")
    assert caught.value.response["Error"] == {
        "Code": "ValidationException",
        "Message": "The request was rejected because the training job is in status Stopped.",
    }
    events = bodies(bench, url)
    assert {event["detail-type"] for event in events} == {STATUS_DETAIL_TYPE}
    states = [event["detail"]["TrainingJobStatus"] for event in events]
    assert states == ["InProgress", "Stopping", "Stopped"]


def test_names_of_jobs_are_checked(bench: Any) -> None:
    sagemaker = create_job(bench)
    with pytest.raises(ClientError, match="ResourceInUse"):
        create_job(bench)
    with pytest.raises(ClientError, match=r"ValidationException.*Requested resource not found"):
        sagemaker.stop_training_job(TrainingJobName="another")
    with pytest.raises(ValueError, match="it is missing"):
        finish_training_job(ACCOUNT_ID, REGION, "another", 0)


def test_a_job_carries_the_statuses_that_were_announced(bench: Any) -> None:
    sagemaker = create_job(bench)
    assert "DebugRuleEvaluationStatuses" not in sagemaker.describe_training_job(
        TrainingJobName="job"
    )
    for status in ({**ISSUES_FOUND, "RuleEvaluationStatus": "InProgress"}, NO_ISSUES, ISSUES_FOUND):
        detail = {
            "TrainingJobName": "job",
            "DebugRuleEvaluationStatuses": [{**status, "LastModifiedTime": 1795212403000}],
        }
        put_event(bench, STATUS_SOURCE, STATUS_DETAIL_TYPE, detail)
    put_event(bench, STATUS_SOURCE, STATUS_DETAIL_TYPE, {"TrainingJobName": "elsewhere"})
    statuses = sagemaker.describe_training_job(TrainingJobName="job")["DebugRuleEvaluationStatuses"]
    found = {s["RuleConfigurationName"]: s["RuleEvaluationStatus"] for s in statuses}
    assert found == {"R": "IssuesFound", "Q": "NoIssuesFound"}
    assert {status["LastModifiedTime"].year for status in statuses} == {2026}
