"""A prepared job started by the real SageMaker SDK, 2.x and 3.x, up to the request it sends."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.python_path import PYTHON_PATH

pytestmark = pytest.mark.other_environment

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(__file__).resolve().parent / "starting_script.py"
VERSIONS = ("2", "3")
REGION = "eu-west-1"
BUCKET = "my-bucket"
CONFIGURATION = f"s3://{BUCKET}/output/mnist-7/stepwatch.json"


@dataclass(frozen=True)
class Cloud:
    """The emulator, and what was started in it."""

    endpoint: str
    source: Path

    @property
    def variables(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": REGION,
            "AWS_REGION": REGION,
        }

    def s3(self) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
        )

    @cache  # noqa: B019 - lives as long as the tests of this file
    def started_by(self, version: str) -> Any:
        python = ROOT / f".venv-sagemaker{version}" / "bin" / "python"
        assert python.exists(), f"no SageMaker SDK {version}.x: run `make setup-all`"
        done = subprocess.run(
            [str(python), str(SCRIPT), BUCKET, str(self.source)],
            capture_output=True,
            text=True,
            timeout=300,
            env={
                **os.environ,
                **self.variables,
                "PYTHONPATH": PYTHON_PATH,
                "PYTHONWARNINGS": "ignore",
                "SAGEMAKER_SUPPRESS_V2_WARNING": "1",
                "SAGEMAKER_TELEMETRY_OPT_OUT": "true",
                "SAGEMAKER_VALIDATE_ROLE": "false",  # the emulator cannot simulate policies
            },
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return json.loads(done.stdout.splitlines()[-1])

    def texts(self, uri: str) -> dict[str, str]:
        """Return the files below a prefix, or in an archive."""
        bucket, _, prefix = uri.removeprefix("s3://").partition("/")
        found = {}
        for entry in self.s3().list_objects_v2(Bucket=bucket, Prefix=prefix)["Contents"]:
            data = self.s3().get_object(Bucket=bucket, Key=entry["Key"])["Body"].read()
            if entry["Key"].endswith(".tar.gz"):
                return in_archive(data)
            found[entry["Key"].removeprefix(prefix).lstrip("/")] = data.decode(errors="replace")
        return found


def in_archive(data: bytes) -> dict[str, str]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {
            member.name: file.read().decode(errors="replace")
            for member in archive
            if (file := archive.extractfile(member)) is not None
        }


@contextmanager
def emulator() -> Iterator[str]:
    """Run moto in a process of its own: in this one the local target may have patched it."""
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        for line in server.stderr:
            if found := re.search(r"Running on (http://127\.0\.0\.1:\d+)", line):
                break
        else:
            pytest.fail("moto's server does not start")
        drain = threading.Thread(target=server.stderr.read, daemon=True)
        drain.start()
        yield found[1]
        server.terminate()


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    source = tmp_path_factory.mktemp("source")
    (source / "train.py").write_text("import hook_layer.pytorch\n")
    (source / "requirements.txt").write_text("timm==1.0.0\n")
    with emulator() as endpoint:
        running = Cloud(endpoint, source)
        running.s3().create_bucket(
            Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION}
        )
        yield running


@pytest.mark.parametrize("version", VERSIONS)
def test_the_request_has_what_belongs_to_the_job(cloud: Cloud, version: str) -> None:
    started = cloud.started_by(version)
    request = started["request"]
    assert request["TrainingJobName"] == started["started"]
    assert started["started"].startswith("mnist-7")
    assert request["Environment"]["STEPWATCH_CONFIG"] == CONFIGURATION
    assert "USE_SMDEBUG" not in request["Environment"]
    assert request["OutputDataConfig"]["S3OutputPath"] == f"s3://{BUCKET}/output"
    assert request["CheckpointConfig"] == {
        "S3Uri": f"s3://{BUCKET}/checkpoints",
        "LocalPath": "/opt/ml/checkpoints",
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_sagemakers_own_debugger_stays_off(cloud: Cloud, version: str) -> None:
    request = cloud.started_by(version)["request"]
    for member in ("DebugHookConfig", "DebugRuleConfigurations", "ProfilerRuleConfigurations"):
        assert not request.get(member), member
    assert request.get("ProfilerConfig") in (None, {"DisableProfiler": True})


def test_the_estimator_names_the_tensors(cloud: Cloud) -> None:
    started = cloud.started_by("2")
    assert f"{started['artifacts']}/" == started["debug_output"]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_container_gets_the_hooks_package(cloud: Cloud, version: str) -> None:
    request = cloud.started_by(version)["request"]
    if version == "2":
        uri = json.loads(request["HyperParameters"]["sagemaker_submit_directory"])
    else:
        (uri,) = (
            channel["DataSource"]["S3DataSource"]["S3Uri"]
            for channel in request["InputDataConfig"]
            if channel["ChannelName"] == "code"
        )
    files = cloud.texts(uri)
    assert files["train.py"] == "import hook_layer.pytorch\n"
    assert {"hook_layer/__init__.py", "hook_layer/pytorch/__init__.py"} <= set(files)
    assert not any("__pycache__" in name for name in files)
    requirements = files["requirements.txt"].splitlines()
    assert requirements[0] == "timm==1.0.0"
    assert any(line.startswith("google-crc32c") for line in requirements)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_job_is_followed_under_its_name(cloud: Cloud, version: str) -> None:
    # The emulator ends a job at once, and no hook has written anything.
    assert cloud.started_by(version)["summary"] == [["VanishingGradient", "Error"]]


@pytest.mark.parametrize("version", VERSIONS)
def test_objects_of_the_sdk_make_the_configuration(cloud: Cloud, version: str) -> None:
    cloud.started_by(version)
    content = json.loads(cloud.texts(CONFIGURATION)[""])
    collections = {
        each["CollectionName"]: each["CollectionParameters"]
        for each in content["DebugHookConfig"]["CollectionConfigurations"]
    }
    assert collections == {"losses": {"save_interval": "5"}, "gradients": {"save_interval": "500"}}
    (rule,) = content["DebugRuleConfigurations"]
    assert "stoptraining" in rule["RuleParameters"]["action_json"]
    assert content["TensorBoardOutputConfig"]["S3OutputPath"] == f"s3://{BUCKET}/output"
