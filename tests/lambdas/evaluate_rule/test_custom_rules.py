"""Rules of the deployer's own, in the three styles, on the same run in the real handler."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest

from hook_layer.format.paths import END_MARKER
from hook_layer.storage.memory import MemoryStore
from lambdas.contracts import environment
from lambdas.evaluate_rule.rules import RuleConfigurationError, RuleFactory
from lambdas.shared.settings import CustomRuleFile, EvaluateRuleSettings, SettingsError
from rule_runtime import smdebug_alias
from rule_runtime.testing.trial_builder import TrialBuilder

if TYPE_CHECKING:
    from tests.lambdas.conftest import Pipeline

SOURCES = Path(__file__).parents[2] / "rule_runtime" / "custom_rules" / "files"
RUN = "01JD0000000000000000000001"
ROOT = "mnist-7/debug-output/"
OTHER_ROOT = "mnist-6/debug-output/"
STEPS = range(0, 30, 5)
STYLES = {
    "native": ("native.py", {"rule_to_invoke": "QuietGradient", "threshold": "1e-3"}, 15),
    "documented": (
        "documented.py",
        {"rule_to_invoke": "QuietGradientRule", "threshold": "1e-3"},
        15,
    ),
    "required": (
        "required.py",
        {"rule_to_invoke": "BehindTheOther", "other_trial_0": "mnist-6"},
        20,
    ),
}
"""Style -> file, parameters, and the step at which the rule finds the issue."""


@pytest.fixture(autouse=True)
def _without_alias() -> Iterator[None]:
    smdebug_alias.uninstall()
    yield
    smdebug_alias.uninstall()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The function's package with the deployer's rules in it."""
    shutil.copytree(SOURCES, tmp_path / "custom_rules")
    monkeypatch.setenv("LAMBDA_TASK_ROOT", str(tmp_path))
    return tmp_path / "custom_rules"


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def configure(
    pipeline: Pipeline, package: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., None]:
    """Deploys the evaluator anew, with another rule."""

    def configured(file: str, parameters: dict[str, str], digest: str | None = None) -> None:
        monkeypatch.setenv(environment.RULE_PARAMETERS, json.dumps(parameters))
        monkeypatch.setenv(environment.CUSTOM_RULE_FILE, file)
        pinned = digest or sha256(package / file)
        monkeypatch.setenv(environment.CUSTOM_RULE_SHA256, pinned)
        pipeline.forget()

    return configured


def run_of(*, is_sick: bool) -> TrialBuilder:
    run = TrialBuilder(MemoryStore(), run=RUN)
    for step in STEPS:
        sick = is_sick and step >= 15
        tensors = {
            "gradient/fc": np.full(4, 1e-6 if sick else 0.1),
            "loss": np.float32(2.0 if sick else 1.0),
        }
        run.step(step, tensors, mode_step=step)
    run.end()
    return run


def upload(pipeline: Pipeline, run: TrialBuilder, root: str) -> None:
    """Write what a run saved, as a hook does it: the values of a step, then its index."""
    pipeline.put_job(root=root, training_job_name=root.partition("/")[0])
    for key in [*run.store.list("events/"), *run.store.list("index/"), END_MARKER]:
        pipeline.put(key, run.store.get(key), root)


def verdict(pipeline: Pipeline) -> dict[str, Any]:
    *_, last = pipeline.announced()
    status: dict[str, Any] = last["DebugRuleEvaluationStatuses"][0]
    return status


@pytest.mark.parametrize("style", STYLES)
def test_each_style_finds_the_issue(
    pipeline: Pipeline, configure: Callable[..., None], style: str
) -> None:
    file, parameters, first = STYLES[style]
    configure(file, parameters)
    upload(pipeline, run_of(is_sick=False), OTHER_ROOT)
    while records := pipeline.receive():  # the other job is not the one that is looked at
        pipeline.aws("sqs").purge_queue(QueueUrl=pipeline.queue_url)
        assert records
    upload(pipeline, run_of(is_sick=True), ROOT)
    records = pipeline.receive()
    while more := [r for r in pipeline.receive() if r["body"] not in {x["body"] for x in records}]:
        records += more
    random.Random(style).shuffle(records)
    for record in records:  # one at a time, each by a process that knows nothing
        pipeline.forget()
        assert pipeline.invoke([record]) == []
    pipeline.deliver()
    told = verdict(pipeline)
    assert told["RuleEvaluationStatus"] == "IssuesFound"
    assert f"at step {first} resulted in the condition being met" in told["StatusDetails"]
    counts = json.loads(pipeline.state_item()["counts"]["S"])
    assert (counts["evaluated"], counts["not_evaluated"], counts["failure"]) == (6, 0, "")
    evidence = json.loads(pipeline.state_item()["evidence"]["S"])
    assert (evidence["first_step"], evidence["last_step"]) == (first, 25)


@pytest.mark.parametrize("style", STYLES)
def test_each_style_passes_a_healthy_run(
    pipeline: Pipeline, configure: Callable[..., None], style: str
) -> None:
    file, parameters, _ = STYLES[style]
    configure(file, parameters)
    upload(pipeline, run_of(is_sick=True), OTHER_ROOT)
    pipeline.aws("sqs").purge_queue(QueueUrl=pipeline.queue_url)
    upload(pipeline, run_of(is_sick=False), ROOT)
    pipeline.deliver()
    assert verdict(pipeline)["RuleEvaluationStatus"] == "NoIssuesFound"


def test_a_rule_that_raises_ends_as_error_with_its_line_and_harms_no_other_job(
    pipeline: Pipeline, configure: Callable[..., None], package: Path
) -> None:
    code = (SOURCES / "documented.py").read_text().replace(" < self.threshold", " < self.treshold")
    (package / "broken.py").write_text(code)
    configure("broken.py", STYLES["documented"][1])
    upload(pipeline, run_of(is_sick=True), ROOT)
    run = TrialBuilder(MemoryStore(), run=RUN)
    run.step(0, {"nothing": [1.0]})  # here the rule has nothing to stumble over
    run.end()
    upload(pipeline, run, OTHER_ROOT)
    pipeline.deliver()
    by_job = {event["TrainingJobName"]: event for event in pipeline.announced()}
    (broken,) = by_job["mnist-7"]["DebugRuleEvaluationStatuses"]
    assert broken["RuleEvaluationStatus"] == "Error"
    assert "has no attribute 'treshold'" in broken["StatusDetails"]
    assert (
        "(broken.py, line 16: if abs_mean < self.treshold:), at step 0" in broken["StatusDetails"]
    )
    (other,) = by_job["mnist-6"]["DebugRuleEvaluationStatuses"]
    assert other["RuleEvaluationStatus"] == "NoIssuesFound"

    version = pipeline.state_item()["version"]
    pipeline.put_step(30, sequence=7)
    pipeline.deliver()
    assert pipeline.state_item()["version"] == version, "it is given up for this run"
    assert pipeline.statuses() == []


def test_a_file_that_was_changed_is_not_run(
    pipeline: Pipeline, configure: Callable[..., None]
) -> None:
    configure("native.py", STYLES["native"][1], digest="0" * 64)
    upload(pipeline, run_of(is_sick=True), ROOT)
    pipeline.deliver()
    told = verdict(pipeline)
    assert told["RuleEvaluationStatus"] == "Error"
    assert f"but {'0' * 64} is pinned" in told["StatusDetails"]
    configure("native.py", STYLES["native"][1])
    pipeline.put_marker()
    pipeline.deliver()
    assert verdict(pipeline)["RuleEvaluationStatus"] == "IssuesFound", "after it was corrected"


class TestTheFactory:
    @staticmethod
    def make(file: str = "documented.py") -> RuleFactory:
        pinned = CustomRuleFile(file, sha256(SOURCES / "documented.py"))
        return RuleFactory("mine", STYLES["documented"][1], pinned)

    @pytest.mark.usefixtures("package")
    def test_a_jobs_own_copy_of_the_file_is_not_looked_at(self) -> None:
        rule = self.make()({"source_s3_uri": "s3://evil/rule.py", "threshold": "2"})
        assert repr(rule) == "<SmdebugRule QuietGradientRule>"

    @pytest.mark.parametrize("file", ["../documented.py", "/etc/passwd.py", "missing.py"])
    def test_only_files_of_the_folder_are_run(self, package: Path, file: str) -> None:
        (package.parent / "documented.py").write_text((SOURCES / "documented.py").read_text())
        with pytest.raises(RuleConfigurationError, match=r"lies in no place|no such file"):
            self.make(file)({})

    @pytest.mark.usefixtures("package")
    def test_a_job_may_not_ask_for_another_class(self) -> None:
        with pytest.raises(RuleConfigurationError, match="use another RuleConfigurationName"):
            self.make()({"rule_to_invoke": "Rule"})

    def test_built_in_rules_take_no_source(self) -> None:
        factory = RuleFactory("X", {"rule_to_invoke": "ExplodingTensor"})
        with pytest.raises(RuleConfigurationError, match="no parameter 'source_s3_uri'"):
            factory({"source_s3_uri": "s3://mine/rule.py"})


class TestSettings:
    VARIABLES: ClassVar = {
        environment.RULE_CONFIGURATION_NAME: "mine",
        environment.RULE_PARAMETERS: '{"rule_to_invoke": "Mine"}',
        environment.STATE_TABLE_NAME: "states",
        environment.TENSOR_BUCKET_NAMES: "tensors",
    }

    def test_both_variables_name_a_custom_rule(self) -> None:
        assert EvaluateRuleSettings.from_environment(self.VARIABLES).custom_rule is None
        more = {environment.CUSTOM_RULE_FILE: "a.py", environment.CUSTOM_RULE_SHA256: "ab" * 32}
        settings = EvaluateRuleSettings.from_environment({**self.VARIABLES, **more})
        assert settings.custom_rule == CustomRuleFile("a.py", "ab" * 32)

    @pytest.mark.parametrize(
        ("file", "digest", "told"),
        [
            ("a.py", "", "STEPWATCH_CUSTOM_RULE_SHA256 is not set"),
            ("", "ab" * 32, "STEPWATCH_CUSTOM_RULE_FILE is not set"),
            ("a.py", "abc", "is 'abc': 64 hexadecimal digits expected"),
        ],
    )
    def test_one_without_the_other_is_told(self, file: str, digest: str, told: str) -> None:
        more = {environment.CUSTOM_RULE_FILE: file, environment.CUSTOM_RULE_SHA256: digest}
        with pytest.raises(SettingsError, match=told):
            EvaluateRuleSettings.from_environment({**self.VARIABLES, **more})
