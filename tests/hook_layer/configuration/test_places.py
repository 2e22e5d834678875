"""Where a hook writes, by its arguments, a configuration file and the platform."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import moto
import pytest

from hook_layer.configuration import places
from hook_layer.configuration.hook_json import load_hook_configuration
from hook_layer.configuration.job import (
    CheckpointConfig,
    JobConfiguration,
    JobEnvironment,
    OutputPaths,
)
from hook_layer.configuration.places import Outputs, resolve_targets
from hook_layer.errors import HookConfigurationError
from hook_layer.storage.mirror import MirrorStore

ARN = "arn:aws:sagemaker:eu-west-1:123456789012:training-job/mnist-7"
NAMED = {"TRAINING_JOB_NAME": "mnist-7"}
ON_SAGEMAKER = {**NAMED, "TRAINING_JOB_ARN": ARN}
BY_FILE = Outputs(by_file=True)


@pytest.fixture(autouse=True)
def opt_ml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Move SageMaker's folder to where a test may write."""
    for name in ("_TENSORBOARD_FILE", "_CHECKPOINT_FILE", "_OUT_DIR", "_TENSORBOARD_DIR"):
        monkeypatch.setattr(places, name, f"{tmp_path}{getattr(places, name)}")
    monkeypatch.setattr(places, "_CHECKPOINT_DIR", f"{tmp_path}{places._CHECKPOINT_DIR}")
    folder = tmp_path / "opt" / "ml"
    (folder / "input" / "config").mkdir(parents=True)
    return folder


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with moto.mock_aws():
        client = boto3.client("s3")
        client.create_bucket(Bucket="bucket")
        yield client


def own(debug: OutputPaths, **facts: Any) -> JobConfiguration:
    return JobConfiguration("STEPWATCH_CONFIG=x", writes_to_s3=True, debug_output=debug, **facts)


def out(job: JobConfiguration, environ: dict[str, str]) -> str:
    return resolve_targets(BY_FILE, job, environ).out.uri


# S3OutputPath -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "root"),
    [
        ("s3://bucket", "s3://bucket/mnist-7/debug-output/"),
        ("s3://bucket/", "s3://bucket/mnist-7/debug-output/"),
        ("s3://bucket/a//b///", "s3://bucket/a/b/mnist-7/debug-output/"),
        ("s3://bucket/a/mnist-7", "s3://bucket/a/mnist-7/debug-output/"),
        ("s3://bucket/a/mnist-7/", "s3://bucket/a/mnist-7/debug-output/"),
        ("s3://bucket/a/mnist-7/debug-output", "s3://bucket/a/mnist-7/debug-output/"),
        ("s3://bucket/a/mnist-7/debug-output//", "s3://bucket/a/mnist-7/debug-output/"),
        ("s3://bucket/debug-output", "s3://bucket/debug-output/mnist-7/debug-output/"),
        ("s3://bucket/other/debug-output/", "s3://bucket/other/debug-output/mnist-7/debug-output/"),
        ("s3://mnist-7", "s3://mnist-7/mnist-7/debug-output/"),
        ("file:///data/runs", "file:///data/runs/mnist-7/debug-output/"),
        ("/data/runs/mnist-7/", "file:///data/runs/mnist-7/debug-output/"),
        ("memory://m/runs", "memory://m/runs/mnist-7/debug-output/"),
    ],
)
def test_job_and_kind_of_output_are_appended_once(
    path: str, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    assert out(own(OutputPaths(path)), NAMED) == root
    assert out(own(OutputPaths(path), training_job_name="mnist-7"), {}) == root
    assert out(own(OutputPaths(root)), NAMED) == root


@pytest.mark.parametrize("path", ["s3:/b/x", "s3//b/x", "S3:b/x", "s3:///b/x"])
def test_a_uri_with_a_slip_is_no_folder(path: str, tmp_path: Path) -> None:
    if "://" not in path:
        with pytest.raises(HookConfigurationError, match="did you mean 's3://b/x'"):
            resolve_targets(Outputs(path), JobConfiguration(), {})
        assert resolve_targets(Outputs(f"{tmp_path}/{path}"), JobConfiguration(), {})
    else:
        with pytest.raises(HookConfigurationError):
            resolve_targets(Outputs(path), JobConfiguration(), {})


@pytest.mark.parametrize("path", ["./s3:/b", "s3", "s3-runs/x", "files/x", "memory", "s3_1/x"])
def test_a_folder_may_have_a_name_like_a_scheme(path: str) -> None:
    assert resolve_targets(Outputs(path), JobConfiguration(), {}).out.uri.startswith("file:")


def test_without_a_name_only_a_whole_path_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    whole = "s3://bucket/mnist-7/debug-output"
    assert out(own(OutputPaths(whole)), {}) == f"{whole}/"
    for path in ("s3://bucket/mnist-7", "s3://bucket/debug-output", "s3://bucket"):
        with pytest.raises(HookConfigurationError, match=r"S3OutputPath=.*TRAINING_JOB_NAME"):
            out(own(OutputPaths(path)), {})


def test_the_platforms_name_counts_before_the_files() -> None:
    job = own(OutputPaths("memory://m"), training_job_name="other")
    assert out(job, NAMED) == "memory://m/mnist-7/debug-output/"
    assert JobEnvironment.detect("memory://m/", NAMED, job).training_job_name == "mnist-7"
    assert JobEnvironment.detect("memory://m/", {}, job).training_job_name == "other"


def test_with_a_local_path_too_a_copy_is_kept(bucket: Any, tmp_path: Path) -> None:
    paths = OutputPaths("s3://bucket/runs", str(tmp_path / "copy"))
    targets = resolve_targets(BY_FILE, own(paths), NAMED)
    assert isinstance(targets.out, MirrorStore)
    targets.out.put("index/x.json", b"1")
    key = "runs/mnist-7/debug-output/index/x.json"
    assert bucket.get_object(Bucket="bucket", Key=key)["Body"].read() == b"1"
    assert (tmp_path / "copy/index/x.json").read_bytes() == b"1"


def test_our_file_may_lie_in_s3(bucket: Any) -> None:
    content = {"TrainingJobName": "j", "DebugHookConfig": {"S3OutputPath": "s3://bucket/t"}}
    bucket.put_object(Bucket="bucket", Key="conf/hook.json", Body=json.dumps(content).encode())
    environ = {"STEPWATCH_CONFIG": "s3://bucket/conf/hook.json"}
    job = load_hook_configuration(None, environ).job
    assert out(job, environ) == "s3://bucket/t/j/debug-output/"
    with pytest.raises(HookConfigurationError, match=r"hook2\.json does not exist"):
        load_hook_configuration(None, {"STEPWATCH_CONFIG": "s3://bucket/conf/hook2.json"})
    with pytest.raises(HookConfigurationError, match="cannot be read"):
        load_hook_configuration(None, {"STEPWATCH_CONFIG": "s3://no-such-bucket/hook.json"})


def test_with_the_originals_file_the_hook_writes_to_its_local_path(tmp_path: Path) -> None:
    paths = OutputPaths("s3://bucket/x", str(tmp_path / "tensors"))
    job = JobConfiguration("hook.json", debug_output=paths)
    assert out(job, {}) == (tmp_path / "tensors").as_uri() + "/"
    only_s3 = JobConfiguration("hook.json", debug_output=OutputPaths("s3://bucket/x"))
    assert out(only_s3, {}) == f"file://{tmp_path}/opt/ml/output/tensors/"


def test_our_file_without_any_path(tmp_path: Path) -> None:
    assert out(own(OutputPaths()), NAMED) == f"file://{tmp_path}/opt/ml/output/tensors/"
    with pytest.raises(HookConfigurationError, match="neither S3OutputPath nor LocalPath"):
        out(own(OutputPaths()), {})


# Arguments ----------------------------------------------------------------------------------------


def test_out_dir_counts_before_everything(tmp_path: Path) -> None:
    outputs = Outputs(str(tmp_path / "x"))
    job = own(OutputPaths("s3://bucket/y"))
    assert resolve_targets(outputs, job, ON_SAGEMAKER).out.uri == f"file://{tmp_path}/x/"


def test_a_missing_out_dir() -> None:
    with pytest.raises(HookConfigurationError, match="out_dir is missing"):
        resolve_targets(Outputs(), JobConfiguration(), {})
    assert resolve_targets(Outputs(), JobConfiguration(), NAMED).out.uri.endswith("output/tensors/")


def test_the_home_folder_is_meant_as_people_write_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert (
        resolve_targets(Outputs("~/x"), JobConfiguration(), {}).out.uri == f"file://{tmp_path}/x/"
    )


@pytest.mark.parametrize("path", ["ftp://host/x", "s3://", "a\0b", "file://host/x", "a\nb"])
def test_a_place_that_is_none(path: str) -> None:
    with pytest.raises(HookConfigurationError, match="out_dir="):
        resolve_targets(Outputs(path), JobConfiguration(), {})


# TensorBoard --------------------------------------------------------------------------------------


def tensorboard(outputs: Outputs, job: JobConfiguration, environ: dict[str, str]) -> str | None:
    store = resolve_targets(outputs, job, environ).tensorboard
    return None if store is None else store.uri


def test_tensorboard_by_arguments() -> None:
    none = JobConfiguration()
    root = "memory://r"
    assert tensorboard(Outputs(root), none, {}) is None
    assert tensorboard(Outputs(root, export_tensorboard=True), none, {}) == f"{root}/tensorboard/"
    assert tensorboard(Outputs(root, tensorboard_dir="memory://t"), none, NAMED) == "memory://t/"


def test_tensorboard_beside_tensors_is_copied_as_they_are(tmp_path: Path) -> None:
    job = own(OutputPaths("memory://r", str(tmp_path)))
    outputs = Outputs(export_tensorboard=True)
    store = resolve_targets(outputs, job, NAMED).tensorboard
    assert isinstance(store, MirrorStore)
    assert store.uri == "memory://r/mnist-7/debug-output/tensorboard/"
    assert store.copy.uri == f"file://{tmp_path}/tensorboard/"


def test_tensorboard_by_our_file(tmp_path: Path) -> None:
    def place(paths: OutputPaths) -> str | None:
        return tensorboard(BY_FILE, own(OutputPaths("memory://r"), tensorboard_output=paths), NAMED)

    assert place(OutputPaths("memory://t")) == "memory://t/mnist-7/tensorboard-output/"
    whole = "memory://t/mnist-7/tensorboard-output/"
    assert place(OutputPaths(whole)) == whole
    assert place(OutputPaths(None, "memory://t/here")) == "memory://t/here/"
    assert place(OutputPaths()) == f"file://{tmp_path}/opt/ml/output/tensorboard/"
    assert place(OutputPaths("memory://t", str(tmp_path))) == whole


def test_tensorboard_in_a_training_job_is_the_platforms(
    opt_ml: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = JobConfiguration("hook.json", debug_output=OutputPaths(None, "memory://r"))
    wanted = Outputs(export_tensorboard=True, tensorboard_dir="memory://t", by_file=True)
    assert tensorboard(BY_FILE, job, NAMED) is None
    assert "TensorBoard" not in caplog.text
    assert tensorboard(wanted, job, NAMED) is None
    assert "no TensorBoard files are written" in caplog.text
    file = opt_ml / "input/config/tensorboardoutputconfig.json"
    file.write_text('{"S3OutputPath": "s3://bucket/t", "LocalPath": "memory://platform"}')
    assert tensorboard(wanted, job, NAMED) == "memory://platform/"
    file.write_text("{}")
    assert tensorboard(wanted, job, NAMED) == f"file://{tmp_path}/opt/ml/output/tensorboard/"
    assert tensorboard(wanted, job, {}) == "memory://t/"
    other = tmp_path / "other.json"
    other.write_text('{"LocalPath": "memory://other"}')
    variable = {"TENSORBOARD_CONFIG_FILE_PATH": str(other)}
    for environ in (variable, {**variable, **NAMED}):
        assert tensorboard(wanted, job, environ) == "memory://other/"
    other.write_text('{"LocalPath": 3}')
    with pytest.raises(HookConfigurationError, match=r"other\.json.*LocalPath=3"):
        tensorboard(wanted, job, variable)


# Checkpoints --------------------------------------------------------------------------------------


def checkpoint(job: JobConfiguration, environ: dict[str, str]) -> CheckpointConfig | None:
    return resolve_targets(Outputs("memory://r"), job, environ).checkpoint


def test_checkpoints_without_any_file(opt_ml: Path) -> None:
    assert checkpoint(JobConfiguration(), NAMED) is None
    (opt_ml / "checkpoints").mkdir()
    assert checkpoint(JobConfiguration(), NAMED) == CheckpointConfig(opt_ml / "checkpoints")
    assert checkpoint(JobConfiguration(), {}) is None


def test_checkpoints_by_the_platforms_file(opt_ml: Path, tmp_path: Path) -> None:
    file = opt_ml / "input/config/checkpointconfig.json"
    file.write_text('{"S3Uri": "s3://bucket/c", "LocalPath": "/c"}')
    assert checkpoint(JobConfiguration(), ON_SAGEMAKER) == CheckpointConfig(Path("/c"))
    assert checkpoint(JobConfiguration(), {}) == CheckpointConfig(Path("/c"), "s3://bucket/c")
    ours = own(OutputPaths(), checkpoint=OutputPaths("s3://bucket/d", "/d"))
    assert checkpoint(ours, ON_SAGEMAKER) == CheckpointConfig(Path("/c"))
    other = tmp_path / "other.json"
    other.write_text("{}")
    environ = {"CHECKPOINT_CONFIG_FILE_PATH": str(other)}
    assert checkpoint(ours, environ) == CheckpointConfig(opt_ml / "checkpoints")


def test_checkpoints_by_our_file(opt_ml: Path) -> None:
    ours = own(OutputPaths(), checkpoint=OutputPaths("s3://bucket/d", "/d"))
    assert checkpoint(ours, {}) == CheckpointConfig(Path("/d"), "s3://bucket/d")
    ours = own(OutputPaths(), checkpoint=OutputPaths("s3://bucket/d"))
    assert checkpoint(ours, {}) == CheckpointConfig(opt_ml / "checkpoints", "s3://bucket/d")


# SageMaker ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outputs", "environ", "is_warned_of"),
    [
        (Outputs(), ON_SAGEMAKER, True),
        (Outputs("/tmp/x"), ON_SAGEMAKER, True),
        (Outputs("memory://x"), ON_SAGEMAKER, False),
        (Outputs("/tmp/x"), NAMED, False),
    ],
)
def test_output_that_nobody_may_judge_is_warned_of(
    outputs: Outputs,
    environ: dict[str, str],
    is_warned_of: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        resolve_targets(outputs, JobConfiguration(), environ)
    assert ("no rule evaluates them" in caplog.text) is is_warned_of


def test_a_path_in_s3_that_is_not_written_to_is_warned_of(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    paths = OutputPaths("s3://bucket/x", str(tmp_path))
    resolve_targets(BY_FILE, JobConfiguration("hook.json", debug_output=paths), {})
    assert "not to S3OutputPath=s3://bucket/x" in caplog.text
    caplog.clear()
    local = JobConfiguration("hook.json", debug_output=OutputPaths(None, str(tmp_path)))
    resolve_targets(BY_FILE, local, {})
    assert not caplog.text
