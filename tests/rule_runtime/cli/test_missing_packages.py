"""Commands that need more than the extra `cli` name what to install, all in the same words."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hook_layer.install_hint import install_hint
from tests.rule_runtime.cli.invoking import invoke

NEEDS_BOTO3 = f"needs boto3: {install_hint('aws')}"


@pytest.fixture
def no_boto3(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("boto3", "botocore", "botocore.config", "botocore.exceptions"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "hook_layer.storage.s3", raising=False)


@pytest.mark.usefixtures("no_boto3")
@pytest.mark.parametrize(
    "arguments",
    [
        ("doctor", "--stack", "Stepwatch-dev"),
        ("doctor", "s3://bucket/doctor/debug-output", "--stack", "Stepwatch-dev"),
        ("doctor", "s3://bucket/doctor/debug-output"),
        ("status", "my-job", "--output-path", "s3://bucket"),
    ],
)
def test_without_boto3_the_extra_is_named(arguments: tuple[str, ...]) -> None:
    status, output = invoke(*arguments)
    assert status == 2
    assert NEEDS_BOTO3 in output


def test_comparing_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    status, output = invoke("compare", tmp_path, tmp_path)
    assert status == 2
    assert f"comparing runs needs pandas: {install_hint('report')}" in output


def test_the_stack_names_the_interpreter_that_can_run_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aws_cdk", None)
    monkeypatch.delitem(sys.modules, "infra", raising=False)
    status, output = invoke("local", "up")
    assert status == 2
    assert "stepwatch: infra needs aws_cdk. Run `make synth`" in output
    assert ".venv/bin/stepwatch" in output
