"""`stepwatch doctor` about an installation, a place, and a deployed stack."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import boto3
import pytest
from botocore.stub import Stubber
from moto import mock_aws

from rule_runtime.doctor.deployment import deployment_findings
from rule_runtime.doctor.finding import Verdict
from rule_runtime.jobs.aws import Aws
from tests.rule_runtime.cli.invoking import invoke, invoke_json

BUCKET = "tensors"


def verdicts(*arguments: object) -> tuple[int, dict[str, tuple[str, str]]]:
    status, found = invoke_json("doctor", *arguments)
    return status, {each["subject"]: (each["verdict"], each["told"]) for each in found}


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    with mock_aws():
        yield


def deploy(version: str) -> None:
    template = {
        "Resources": {"Bucket": {"Type": "AWS::S3::Bucket", "Properties": {"BucketName": BUCKET}}},
        "Outputs": {"Version": {"Value": version}, "TensorBucketNames": {"Value": BUCKET}},
    }
    boto3.client("cloudformation").create_stack(
        StackName="Stepwatch-dev", TemplateBody=json.dumps(template)
    )


def test_an_installation_in_order() -> None:
    status, found = verdicts()
    assert status == 0
    assert found["stepwatch"][1].startswith(metadata.version("stepwatch"))
    assert "torch" in found["frameworks"][1]
    assert found["hooks"] == ("ok", "on")


def test_what_keeps_hooks_from_working(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USE_SMDEBUG", "0")
    file = tmp_path / "stepwatch.json"
    file.write_text('{"DebugHookConfig": {"HookParameters": {"save_intervall": "1"}}}')
    monkeypatch.setenv("STEPWATCH_CONFIG", str(file))
    status, found = verdicts()
    assert status == 1
    assert found["hooks"] == ("problem", "USE_SMDEBUG=0 switches all hooks off")
    assert found["configuration file"][0] == "problem"
    assert "did you mean 'save_interval'" in found["configuration file"][1]


def test_a_place_that_can_be_written_to_and_one_that_cannot(tmp_path: Path) -> None:
    status, _ = verdicts(tmp_path / "runs")
    assert status == 0
    assert list((tmp_path / "runs").iterdir()) == []
    (tmp_path / "file").write_text("")
    status, output = invoke("doctor", tmp_path / "file" / "runs", "--output", "json")
    assert status == 1
    assert "a part of the path is a file" in output


@pytest.mark.usefixtures("aws")
def test_a_stack_that_watches_the_bucket() -> None:
    version = metadata.version("stepwatch")
    deploy(version)
    s3 = boto3.client("s3")
    with Stubber(s3) as stubber:  # moto keeps this setting, and does not tell of it
        stubber.add_response(
            "get_bucket_notification_configuration", {"EventBridgeConfiguration": {}}
        )
        aws = Aws()
        aws._clients["s3"] = s3
        found = list(deployment_findings(aws, "Stepwatch-dev", version, BUCKET))
    assert {each.verdict for each in found} == {Verdict.OK}
    assert [each.told for each in found][1:] == [
        "CREATE_COMPLETE",
        f"{version}, as here",
        "the stack watches it",
        "go to EventBridge",
        "none is on",
        *["none in the last hour"] * 3,
    ]


@pytest.mark.usefixtures("aws")
def test_a_bucket_that_can_be_written_to() -> None:
    boto3.client("s3").create_bucket(Bucket=BUCKET)
    status, found = verdicts(f"s3://{BUCKET}/runs")
    assert status == 0
    assert found[f"s3://{BUCKET}/runs/"][0] == "ok"
    assert "Contents" not in boto3.client("s3").list_objects_v2(Bucket=BUCKET)


@pytest.mark.usefixtures("aws")
def test_what_keeps_a_bucket_from_being_watched() -> None:
    deploy("0.0.1")
    boto3.client("s3").create_bucket(Bucket="mine")
    status, found = verdicts("s3://mine/runs", "--stack", "Stepwatch-dev")
    assert status == 1
    assert found["deployed version"] == (
        "note",
        f"0.0.1; here it is {metadata.version('stepwatch')}",
    )
    assert found["bucket mine"] == ("problem", f"the stack does not watch it, but {BUCKET}")
    assert found["events of the bucket"][0] == "problem"
    _, output = invoke("doctor", "s3://mine/runs", "--stack", "Stepwatch-dev", "--output", "json")
    assert "deploy with this bucket in stepwatch:tensor_buckets" in output


@pytest.mark.usefixtures("aws")
def test_a_bucket_that_is_not_there() -> None:
    deploy("0.0.1")
    _, found = verdicts("s3://mine/runs", "--stack", "Stepwatch-dev")
    assert found["events of the bucket"] == ("problem", "there is no such bucket")


@pytest.mark.usefixtures("aws")
def test_a_stack_and_a_bucket_that_are_not_there() -> None:
    status, found = verdicts("s3://mine/runs", "--stack", "Stepwatch-dev")
    assert status == 1
    assert found["stack Stepwatch-dev"][0] == "problem"
    assert "does not exist" in found["s3://mine/runs/"][1]


def test_every_extra_that_commands_need_is_told() -> None:
    _, output = invoke("doctor")
    assert [name for name in ("aws", "cli", "report", "ui") if f"extra {name}" not in output] == []
