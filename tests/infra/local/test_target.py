"""The synthesised template, deployed and running: from an index file to a stopped job."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hook_layer.format.index import IndexFile, TensorShape
from hook_layer.format.job_file import JobFile
from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import END_MARKER, JOB_FILE, STOP_FILE, index_key
from hook_layer.format.statistics_block import STATISTICS_COLUMNS, Statistics
from infra.local import LocalTarget
from infra.local.deployment import DeploymentError, synthesise
from infra.local.service_environment import REGION
from lambdas.contracts.events import NATIVE_SOURCE, STATUS_DETAIL_TYPE

RULE = "explosion"
RUN = "01JD0000000000000000000001"
TENSOR = "conv.weight"
CONTEXT = {
    "stepwatch:rules": {RULE: {"rule_to_invoke": "ExplodingTensor"}},
    "stepwatch:stop_rules": "",  # all of them, native ones too
}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalTarget]:
    with LocalTarget(CONTEXT, workdir=tmp_path_factory.mktemp("target")) as running:
        yield running


class Job:
    """A training job's part: it writes index files."""

    def __init__(self, target: LocalTarget, name: str) -> None:
        self.target = target
        self.name = name
        self.root = f"{name}/debug-output/"
        uri = f"s3://{target.tensor_bucket}/{self.root}"
        self.arn = target.start_training_job(name, uri, may_be_stopped=True)
        job = JobFile(name, RUN, "sagemaker", "2026-11-20T10:00:00Z", training_job_arn=self.arn)
        self.put(JOB_FILE, job.encode())

    def put(self, key: str, data: bytes) -> None:
        bucket = self.target.tensor_bucket
        self.target.client("s3").put_object(Bucket=bucket, Key=self.root + key, Body=data)

    def put_step(self, step: int, num_nan: int = 0) -> None:
        row = dict.fromkeys(STATISTICS_COLUMNS, 1.0) | {"size": 4.0, "inf": 0.0, "nan": num_nan}
        statistics = Statistics(
            columns=STATISTICS_COLUMNS,
            tensors=(TENSOR,),
            dtypes=("float32",),
            shapes=((4,),),
            values=np.array([[row[name] for name in STATISTICS_COLUMNS]]),
            crc32c=(None,),
        )
        index = IndexFile(
            mode=ModeKeys.TRAIN,
            mode_step=step,
            event_file_name=None,
            locations=(),
            shapes=(TensorShape(TENSOR, TENSOR, (4,)),),
            statistics=statistics,
            run=RUN,
            workers=1,
            sequence=step + 1,
        )
        self.put(index_key(step, "worker_0"), index.encode())

    def rule_statuses(self) -> dict[str, str]:
        return {
            status["RuleConfigurationName"]: status["RuleEvaluationStatus"]
            for status in self.target.rule_statuses(self.name)
        }

    def status(self) -> str:
        sagemaker = self.target.client("sagemaker")
        described = sagemaker.describe_training_job(TrainingJobName=self.name)
        return str(described["TrainingJobStatus"])


def stop_signal(target: LocalTarget, job: Job) -> dict[str, Any]:
    key = job.root + STOP_FILE
    found = target.client("s3").get_object(Bucket=target.tensor_bucket, Key=key)
    signal: dict[str, Any] = json.loads(found["Body"].read())
    return signal


def test_a_sick_job_is_stopped(target: LocalTarget) -> None:
    job = Job(target, "sick")
    job.put_step(0)
    target.wait_idle()
    assert job.rule_statuses() == {RULE: "InProgress"}
    assert job.status() == "InProgress"
    job.put_step(1, num_nan=2)
    target.wait_idle()
    assert job.rule_statuses() == {RULE: "IssuesFound"}
    assert job.status() == "Stopping"
    (status,) = target.rule_statuses("sick")
    assert TENSOR in status["StatusDetails"]
    assert stop_signal(target, job)["RuleConfigurationName"] == RULE
    assert target.finish_training_job("sick", exit_code=1) == "Stopped"
    assert job.status() == "Stopped"
    target.wait_idle()


def test_a_healthy_job_completes(target: LocalTarget) -> None:
    job = Job(target, "healthy")
    for step in range(3):
        job.put_step(step)
    job.put(END_MARKER, RUN.encode())
    target.wait_idle()
    assert job.rule_statuses() == {RULE: "NoIssuesFound"}
    assert target.finish_training_job("healthy", exit_code=0) == "Completed"
    target.wait_idle()


def test_what_happens_while_the_poller_is_dead_is_judged_afterwards(target: LocalTarget) -> None:
    job = Job(target, "late")
    target.wait_idle()  # what a killed call had in hand comes back after a minute only
    target.poller.kill()
    job.put_step(0, num_nan=1)
    with pytest.raises(TimeoutError, match="events still wait"):
        target.wait_idle(timeout_s=0)
    assert job.rule_statuses() == {}
    target.poller.start()
    target.wait_idle()
    assert job.status() == "Stopping"


def test_native_findings_stop_jobs_too(target: LocalTarget) -> None:
    job = Job(target, "native")
    detail = {
        "TrainingJobName": "native",
        "TrainingJobArn": job.arn,
        "TrainingJobStatus": "InProgress",
        "DebugRuleEvaluationStatuses": [
            {"RuleConfigurationName": "Overfit", "RuleEvaluationStatus": "IssuesFound"}
        ],
    }
    entry = {
        "Source": NATIVE_SOURCE,
        "DetailType": STATUS_DETAIL_TYPE,
        "Detail": json.dumps(detail),
    }
    target.client("events").put_events(Entries=[entry])
    target.wait_idle()
    assert job.status() == "Stopping"


def test_metrics_are_written_where_the_dashboard_looks_for_them(target: LocalTarget) -> None:
    job = Job(target, "measured")
    job.put_step(0, num_nan=1)
    target.wait_idle()
    lines = [
        json.loads(line)
        for log in (target.workdir / "logs").iterdir()
        for line in log.read_text().splitlines()
        if line.startswith("{") and "CloudWatchMetrics" in line
    ]
    described = [group for line in lines for group in line["_aws"]["CloudWatchMetrics"]]
    names = {metric["Name"] for group in described for metric in group["Metrics"]}
    assert {"VerdictLatency", "StepsEvaluated", "Requests", "JobsStopped"} <= names
    assert {group["Namespace"] for group in described} == {"Stepwatch/dev"}


def test_environment_leads_to_the_emulator_only(target: LocalTarget) -> None:
    environment = target.environment()
    assert environment["AWS_ENDPOINT_URL"].startswith("http://127.0.0.1:")
    assert environment["AWS_ENDPOINT_URL"] == target.endpoint_url
    assert environment["AWS_DEFAULT_REGION"] == REGION


def test_each_function_has_its_own_log(target: LocalTarget) -> None:
    logs = [path.name for path in (target.workdir / "logs").iterdir()]
    listed = target.client("lambda").list_functions()["Functions"]
    assert sorted(logs) == sorted(f"{function['FunctionName']}.log" for function in listed)


def test_mistakes_in_the_context_are_reported() -> None:
    with pytest.raises(DeploymentError, match="stepwatch:stop_policy = 'never'"):
        synthesise({"stepwatch:stop_policy": "never"})


def test_synthesis_is_kept(assembly: Path, rules: dict[str, Any]) -> None:
    context = {"stepwatch:rules": rules, "stepwatch:stop_rules": ["explosion"]}
    assert synthesise(context) == assembly
