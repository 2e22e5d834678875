"""A job the whole way: prepared, trained on the local target, judged, stopped, told."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from typing_extensions import Self

from infra.local import LocalTarget
from rule_runtime.configuration import (
    CollectionConfig,
    DebuggerHookConfig,
    Rule,
    StopTraining,
    rule_configs,
)
from rule_runtime.jobs import DebugJob, PreparedJob, prepare

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 240.0
NUM_STEPS = 2_000_000  # far more than are made before the job is stopped
HOOK = DebuggerHookConfig(
    hook_parameters={"save_interval": 10, "stop_poll_s": 0.5},
    collection_configs=[CollectionConfig("losses"), CollectionConfig("weights")],
)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalTarget]:
    context = {"stepwatch:rules": {"NonFinite": {}}, "stepwatch:stop_rules": ["NonFinite"]}
    with LocalTarget(context, workdir=tmp_path_factory.mktemp("local")) as running:
        yield running


@pytest.fixture(autouse=True)
def _environment(target: LocalTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in target.environment().items():
        monkeypatch.setenv(name, value)


class Training:
    """A training process, and the platform that looks after it."""

    def __init__(self, job: PreparedJob, learning_rate: float, **environment: str) -> None:
        command = [sys.executable, "-m", "tests.e2e.prepared_training"]
        self.process = subprocess.Popen(
            [*command, str(learning_rate), str(NUM_STEPS)],
            cwd=ROOT,
            env={**os.environ, **job.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def output(self) -> str:
        text, _ = self.process.communicate(timeout=WAIT_S)
        assert self.process.returncode == 0, text
        return text


def request() -> dict[str, Any]:
    return {
        "AlgorithmSpecification": {"TrainingImage": "local", "TrainingInputMode": "File"},
        "RoleArn": "arn:aws:iam::123456789012:role/local-training",
        "ResourceConfig": {
            "InstanceType": "ml.m5.large",
            "InstanceCount": 1,
            "VolumeSizeInGB": 1,
        },
        "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
    }


def test_a_job_of_sagemaker_from_its_preparation_to_its_stop(target: LocalTarget) -> None:
    prepared = prepare(
        base_job_name="whole-way",
        output_path=f"s3://{target.tensor_bucket}/output",
        hook_config=HOOK,
        rules=[
            Rule.sagemaker({"DebugRuleConfiguration": {"RuleConfigurationName": "NonFinite"}}),
            Rule.sagemaker(rule_configs.loss_not_decreasing(), name="slow loss"),
        ],
        actions=StopTraining(),
    )
    name = prepared.job_name
    sagemaker = target.client("sagemaker")
    arn = sagemaker.create_training_job(**prepared.training_job_request(request()))[
        "TrainingJobArn"
    ]
    lines: list[str] = []
    with Training(prepared, 1e6, TRAINING_JOB_NAME=name, TRAINING_JOB_ARN=arn) as training:
        job = DebugJob(name)
        before = job.rule_job_summary()
        assert [each["RuleEvaluationStatus"] for each in before] == ["InProgress"] * 2
        finding, other = job.wait_for_rules(poll_s=0.5, timeout_s=WAIT_S, out=lines.append)
        assert "stopped: " in training.output()
        assert job.describe()["TrainingJobStatus"] == "Stopping"
        target.finish_training_job(name, training.process.returncode)
    assert finding["RuleConfigurationName"] == "NonFinite"
    assert finding["RuleEvaluationStatus"] == "IssuesFound"
    assert finding["StatusDetails"].startswith("RuleEvaluationConditionMet: ")
    assert finding["StatusDetails"].endswith("\n")
    assert other["RuleConfigurationName"] == "slow loss"
    assert lines[:2] == ["NonFinite: InProgress", "slow loss: InProgress"]
    assert "NonFinite: IssuesFound" in lines
    described = job.describe()
    assert described["TrainingJobStatus"] == described["SecondaryStatus"] == "Stopped"
    assert described["TrainingJobArn"] == arn
    assert job.trial().steps()[0] == 0
    check_log_urls(job, target)


def test_replicas_that_diverge_are_found(target: LocalTarget) -> None:
    rule = {
        "RuleConfigurationName": "replicas",
        "RuleParameters": {"rule_to_invoke": "ReplicaDivergence"},
    }
    prepared = prepare(
        base_job_name="replicas",
        output_path=f"s3://{target.tensor_bucket}/output",
        hook_config=DebuggerHookConfig(hook_parameters={"save_interval": 5, "stop_poll_s": 0.5}),
        rules=[Rule.sagemaker({"DebugRuleConfiguration": rule})],
    )
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run(
        [*launcher, "--nproc-per-node", "2", "-m", "tests.e2e.diverging_training"],
        cwd=ROOT,
        env={**os.environ, **prepared.environment, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (finding,) = prepared.job().wait_for_rules(poll_s=0.5, timeout_s=WAIT_S)
    assert finding["RuleEvaluationStatus"] == "IssuesFound", finding
    assert "differs between workers" in finding["StatusDetails"]


def check_log_urls(job: DebugJob, target: LocalTarget) -> None:
    urls = job.rule_log_urls()
    assert list(urls) == ["NonFinite", "slow loss"]
    groups = [
        unquote(unquote(url.split("/log-group/")[1].split("/log-events")[0].replace("$", "%")))
        for url in urls.values()
    ]
    deployed = target.client("logs").describe_log_groups()["logGroups"]
    assert set(groups) <= {group["logGroupName"] for group in deployed}
    assert "NonFinite" in groups[0]
    assert "_job-rules" in groups[1]


def test_a_job_elsewhere_is_stopped_by_its_owner(target: LocalTarget) -> None:
    prepared = prepare(
        job_name="elsewhere",
        output_path=f"s3://{target.tensor_bucket}/output",
        hook_config=HOOK,
        rules=None,
    )
    job = prepared.job()
    assert [each["RuleConfigurationName"] for each in job.rule_job_summary()] == ["NonFinite"]
    with Training(prepared, 1e-4) as training:
        while job.describe()["SecondaryStatus"] != "Training":
            assert training.process.poll() is None, training.output()
            time.sleep(0.3)
        job.stop()
        assert job.describe()["TrainingJobStatus"] in ("Stopping", "Stopped")
        assert "DebugJob.stop()" in training.output()
    (rule,) = job.wait_for_rules(poll_s=0.3, timeout_s=WAIT_S)
    assert rule["RuleEvaluationStatus"] == "NoIssuesFound"
    assert job.describe()["TrainingJobStatus"] == "Stopped"
