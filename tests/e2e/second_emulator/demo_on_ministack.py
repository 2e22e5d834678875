"""The application, deployed by CDK's own command into ministack, and the demo on top of it.

`make e2e` runs this, with a function for each rule; `make e2e EVALUATORS=grouped` with one for all.
The file's name keeps it out of other tests, for it needs an environment of its own, and minutes.
The tests are the steps of one deployment's life, in the order of the file.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from typing import cast

import pytest
from botocore.exceptions import ClientError
from rich.console import Console

from examples.demo.__main__ import RULES, STOP_RULES, rule_that_stopped, run_jobs
from examples.demo.report import print_table
from infra.build_folder import BUILD
from infra.local import LocalTarget
from lambdas.contracts import environment
from rule_runtime.configuration.packs import PACKS
from tests.e2e.second_emulator.cdk_command import CdkCommand
from tests.e2e.second_emulator.emulator import SecondEmulator, eventually, tail
from tests.e2e.second_emulator.target import MiniStackTarget

FOLDER = BUILD / "e2e"
FUNCTIONS_LOG = FOLDER / "functions.log"
DENIED = "not authorized to perform"
CAUSE = "A number is not finite: seen at step "
SWEEP_S = 90
"""Seconds within which the sweeper, which runs once a minute, has been called."""


@pytest.fixture(scope="module")
def emulator(request: pytest.FixtureRequest) -> Iterator[SecondEmulator]:
    """ministack; its log and CDK's stay in the folder until the next time."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    with SecondEmulator(FOLDER) as started:
        yield started
    shutil.rmtree(FOLDER / "code")
    if request.session.testsfailed:
        print(f"\nlogs are in {FOLDER}")
        for log in (started.log, FUNCTIONS_LOG):
            print(f"{log.name} ends with:\n{tail(log)}")


@pytest.fixture(scope="module")
def cdk(emulator: SecondEmulator) -> CdkCommand:
    return CdkCommand(FOLDER, emulator.environment())


@pytest.fixture(scope="module")
def target(emulator: SecondEmulator, cdk: CdkCommand) -> MiniStackTarget:
    """The deployment of the demo's rules."""
    return MiniStackTarget(emulator, cdk.outputs, RULES)


def functions(emulator: SecondEmulator) -> list[dict[str, str]]:
    """Return the variables of each deployed function."""
    pages = emulator.client("lambda").get_paginator("list_functions").paginate()
    return [each["Environment"]["Variables"] for page in pages for each in page["Functions"]]


def rules(emulator: SecondEmulator) -> set[str]:
    """Return the deployed rules; the names of what stands for others begin with `#`."""
    found = set()
    for variables in functions(emulator):
        found |= {variables.get(environment.RULE_CONFIGURATION_NAME, "#")}
        found |= json.loads(variables.get(environment.GROUPED_RULES, "{}")).keys()
    return {rule for rule in found if not rule.startswith("#")}


def test_the_application_is_deployed_as_it_comes(emulator: SecondEmulator, cdk: CdkCommand) -> None:
    cdk.bootstrap()
    cdk.deploy()
    assert rules(emulator) == set(PACKS["recommended"].parameters)
    cdk.diff()


def test_an_update_replaces_the_rules(emulator: SecondEmulator, cdk: CdkCommand) -> None:
    bucket = cdk.outputs["TensorBucketName"]
    cdk.deploy({"stepwatch:rules": RULES, "stepwatch:stop_rules": STOP_RULES})
    assert rules(emulator) == set(RULES)
    assert cdk.outputs["TensorBucketName"] == bucket
    cdk.diff()


def test_roles_are_enforced(emulator: SecondEmulator, target: MiniStackTarget) -> None:
    keys = {key.lower(): value for key, value in target.environment().items()}
    names = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
    training = emulator.client("s3", **{name: keys[name] for name in names})
    training.put_object(Bucket=target.tensor_bucket, Key="job/debug-output/job.json", Body=b"{}")
    with pytest.raises(ClientError, match=DENIED):
        training.get_object(Bucket=target.tensor_bucket, Key="job/debug-output/job.json")


def test_the_demo_ends_well(emulator: SecondEmulator, target: MiniStackTarget) -> None:
    console = Console(width=150)
    began = time.monotonic()
    try:
        results, mistakes, sick = run_jobs(cast("LocalTarget", target), console)
    finally:
        logs = emulator.function_logs()
        FUNCTIONS_LOG.write_text("".join(logs.values()))
    print_table(results, console)
    console.print(f"demo: {time.monotonic() - began:.0f} s")
    stops = [key for key in target.object_arrivals("") if key.endswith("/stop.json")]
    stored = emulator.client("s3").get_object(Bucket=target.tensor_bucket, Key=stops[0])
    reason = json.load(stored["Body"])["Reason"]
    console.print(f"reason of the stop: {reason}", soft_wrap=True, markup=False)
    eventually(lambda: "Diagnosis" in target.summary("sick"), 30, "the summary has the cause")
    summary = target.summary("sick")
    console.print(f"summary of the sick run: {summary['Summary']}", soft_wrap=True, markup=False)
    console.print_json(data=summary["Diagnosis"])
    assert [line for text in logs.values() for line in text.splitlines() if DENIED in line] == []
    assert mistakes == []
    assert all(answer.endswith("evaluations are due") for answer in target.ended.values())
    assert rule_that_stopped(sick, cast("LocalTarget", target)) in STOP_RULES
    assert stops == ["sick/debug-output/stop.json"]
    assert reason.startswith(CAUSE)
    assert summary["Summary"].startswith(CAUSE)
    assert "Diagnosis" not in target.summary("healthy")
    eventually(lambda: not target.messages(), 10, "every event is taken, and none is a dead letter")
    eventually(
        lambda: all(emulator.function_logs().values()),
        SWEEP_S,
        "every function is called, the sweeper once a minute",
    )


def test_the_stack_is_deleted(
    emulator: SecondEmulator, cdk: CdkCommand, target: MiniStackTarget
) -> None:
    cdk.diff()
    target.empty_buckets()
    cdk.destroy()
    assert functions(emulator) == []
    buckets = [bucket["Name"] for bucket in emulator.client("s3").list_buckets()["Buckets"]]
    assert [name for name in buckets if not name.startswith("cdk-")] == []
