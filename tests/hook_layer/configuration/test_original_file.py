"""Scripts find the configuration file where SageMaker Debugger writes it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hook_layer.configuration import original_file
from hook_layer.configuration.configuration_file import ConfigurationFile
from hook_layer.configuration.hook_json import load_hook_configuration
from hook_layer.configuration.original_file import write_original_file

HOOK = {"S3OutputPath": "s3://bucket/x", "HookParameters": {"save_interval": "100"}}
OWN = ConfigurationFile({"DebugHookConfig": HOOK}, "STEPWATCH_CONFIG", is_own=True)
IN_A_JOB = {"TRAINING_JOB_NAME": "job"}


def test_a_hook_of_a_prepared_job_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stepwatch.json").write_text(json.dumps(OWN.document))
    path = tmp_path / "debughookconfig.json"
    monkeypatch.setattr(original_file, "SAGEMAKER_FILE", str(path))
    environ = {"STEPWATCH_CONFIG": str(tmp_path / "stepwatch.json"), **IN_A_JOB}
    load_hook_configuration(environ=environ)
    assert json.loads(path.read_text()) == {"LocalPath": "/opt/ml/output/tensors", **HOOK}


def test_a_file_that_exists_stays(tmp_path: Path) -> None:
    path = tmp_path / "debughookconfig.json"
    path.write_text("{}")
    write_original_file(OWN, IN_A_JOB, path)
    assert path.read_text() == "{}"


@pytest.mark.parametrize(
    ("file", "environ", "path"),
    [
        (OWN, {}, "a.json"),
        (ConfigurationFile(HOOK, "x"), IN_A_JOB, "a.json"),
        (OWN, IN_A_JOB, "none/a.json"),
    ],
    ids=["no job of SageMaker", "another file", "no folder"],
)
def test_otherwise_it_is_not_written(
    tmp_path: Path, file: ConfigurationFile, environ: dict[str, str], path: str
) -> None:
    write_original_file(file, environ, tmp_path / path)
    assert not list(tmp_path.iterdir())


def test_an_image_with_the_original_client_gets_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "smdebug").mkdir()
    (tmp_path / "smdebug" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    write_original_file(OWN, IN_A_JOB, tmp_path / "a.json")
    assert not (tmp_path / "a.json").exists()
