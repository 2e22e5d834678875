"""A job that configures its rules itself, in the deployed template with real functions."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hook_layer.format.job_file import JobFile
from hook_layer.format.paths import JOB_FILE, STOP_FILE
from hook_layer.storage.s3 import S3Store
from infra.local import LocalTarget
from rule_runtime.configuration.debug_rule import Rule
from rule_runtime.jobs import prepare
from rule_runtime.testing.trial_builder import TrialBuilder

RUN = "01JD0000000000000000000001"
FILE = "team/quiet.py"
SOURCE = '''
"""A rule in the style of the original."""
from smdebug.rules.rule import Rule


class QuietGradient(Rule):
    def __init__(self, base_trial, threshold: float = 0.0):
        super().__init__(base_trial)
        self.threshold = threshold

    def invoke_at_step(self, step):
        values = self.base_trial.tensor("gradient/fc").value(step)
        return abs(values).mean() < self.threshold
'''
STOP = '{"name": "stoptraining"}'


def built_in(name: str, invoked: str, **parameters: str) -> dict[str, Any]:
    return {
        "RuleConfigurationName": name,
        "RuleParameters": {"rule_to_invoke": invoked, **parameters},
    }


def custom(target: LocalTarget, name: str, key: str, **parameters: str) -> dict[str, Any]:
    source = f"s3://{target.outputs['CustomRuleBucketName']}/{key}"
    invoked = "QuietGradient"
    rule = Rule.custom(name, source=source, rule_to_invoke=invoked, rule_parameters=parameters)
    return rule.to_json()


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalTarget]:
    context = {
        "stepwatch:rules": {
            "NonFinite": {},
            "VanishingGradient": {"threshold": "1e-7"},
            "ExplodingTensor": {},
        },
        "stepwatch:stop_rules": ["NonFinite"],
        "stepwatch:custom_rules": {FILE: hashlib.sha256(SOURCE.encode()).hexdigest()},
    }
    with LocalTarget(context, workdir=tmp_path_factory.mktemp("target")) as running:
        bucket = running.outputs["CustomRuleBucketName"]
        s3 = running.client("s3")
        s3.put_object(Bucket=bucket, Key=FILE, Body=SOURCE.encode())
        s3.put_object(Bucket=bucket, Key="team/other.py", Body=SOURCE.encode())
        yield running


def train(
    target: LocalTarget, name: str, rules: list[dict[str, Any]], *, may_be_stopped: bool = False
) -> S3Store:
    """Write what a job saves whose gradients have a mean of 1e-3."""
    uri = f"s3://{target.tensor_bucket}/{name}/debug-output"
    arn = target.start_training_job(name, uri, may_be_stopped=may_be_stopped)
    store = S3Store(uri, client=target.client("s3"))
    job = JobFile(name, RUN, "sagemaker", "", arn, debug_rule_configurations=tuple(rules))
    store.put(JOB_FILE, job.encode())
    builder = TrialBuilder(store, run=RUN)
    for step in range(2):
        builder.step(step, {"gradient/fc": np.full(4, 1e-3, np.float32)})
    builder.end()
    target.wait_idle(timeout_s=60)
    return store


def verdicts(target: LocalTarget, job: str) -> dict[str, tuple[str, str]]:
    """Return status and details of each rule."""
    return {
        status["RuleConfigurationName"]: (
            status["RuleEvaluationStatus"],
            status["StatusDetails"],
        )
        for status in target.rule_statuses(job)
    }


def test_the_library_knows_which_files_are_pinned_and_uploads_those(
    target: LocalTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in target.environment().items():
        monkeypatch.setenv(name, value)
    (tmp_path / "quiet.py").write_text(SOURCE)
    rule = Rule.custom("Mine", source=str(tmp_path / "quiet.py"), rule_to_invoke="QuietGradient")
    bucket = target.outputs["CustomRuleBucketName"]
    target.client("s3").delete_object(Bucket=bucket, Key=FILE)
    output = f"s3://{target.tensor_bucket}/prepared"
    job = prepare(job_name="prepared", output_path=output, rules=[rule])
    assert job.configuration.rules[0].source == f"s3://{bucket}/{FILE}"
    stored = target.client("s3").get_object(Bucket=bucket, Key=FILE)["Body"].read()
    assert stored == SOURCE.encode()
    (url,) = job.job().rule_log_urls().values()
    assert "_custom-rules" in url


def test_each_rule_of_a_job_comes_to_its_verdict(target: LocalTarget) -> None:
    rules = [
        built_in("VanishingGradient", "VanishingGradient", threshold="1e-4"),
        built_in("Strict", "VanishingGradient", threshold="1e-2"),
        built_in("Lenient", "VanishingGradient", threshold="1e-5"),
        built_in("NonFinite", "ExplodingTensor"),
        built_in("Unknown", "VanishingGradeint"),
        built_in("Mistyped", "VanishingGradient", treshold="1e-5"),
        custom(target, "Mine", FILE, threshold="1e-2"),
        custom(target, "Healthy", FILE, threshold="1e-4"),
        custom(target, "NotPinned", "team/other.py"),
    ]
    store = train(target, "own", rules)
    found = verdicts(target, "own")
    assert {name: status for name, (status, _) in found.items()} == {
        "VanishingGradient": "NoIssuesFound",
        "Strict": "IssuesFound",
        "Lenient": "NoIssuesFound",
        "NonFinite": "Error",
        "Unknown": "Error",
        "Mistyped": "Error",
        "Mine": "IssuesFound",
        "Healthy": "NoIssuesFound",
        "NotPinned": "Error",
    }, "and ExplodingTensor is switched off for this job"
    assert "gradient/fc" in found["Strict"][1]
    assert "at step 0 resulted in the condition being met" in found["Mine"][1]
    assert "use another RuleConfigurationName" in found["NonFinite"][1]
    assert "there is no rule 'VanishingGradeint'" in found["Unknown"][1]
    assert "takes no parameter 'treshold'" in found["Mistyped"][1]
    assert "did not pin in the setting stepwatch:custom_rules" in found["NotPinned"][1]
    assert not store.exists(STOP_FILE), "none of the findings is one that stops jobs"


@pytest.mark.parametrize(("has_tag", "status"), [(True, "Stopping"), (False, "InProgress")])
def test_a_finding_stops_the_loop_that_asked_for_it_and_with_the_tag_the_job(
    target: LocalTarget, has_tag: bool, status: str
) -> None:
    name = f"asked-{status.lower()}"
    stopping = built_in("Strict", "VanishingGradient", threshold="1e-2", action_json=STOP)
    store = train(target, name, [stopping], may_be_stopped=has_tag)
    assert verdicts(target, name)["Strict"][0] == "IssuesFound"
    assert store.exists(STOP_FILE)
    described = target.client("sagemaker").describe_training_job(TrainingJobName=name)
    assert described["TrainingJobStatus"] == status


def test_a_job_without_rules_of_its_own_has_the_deployed_ones(target: LocalTarget) -> None:
    train(target, "none", [])
    assert verdicts(target, "none") == {}
