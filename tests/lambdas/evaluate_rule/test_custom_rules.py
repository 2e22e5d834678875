"""Rules of the deployer's own, in the three styles, on the same run in the real handler."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from botocore.exceptions import ClientError

from hook_layer.format.paths import END_MARKER
from hook_layer.storage.memory import MemoryStore
from lambdas.contracts import environment
from lambdas.contracts.events import CUSTOM_RULES
from lambdas.shared import clients
from lambdas.shared.settings import CustomRules, EvaluateRuleSettings, SettingsError
from rule_runtime import smdebug_alias
from rule_runtime.custom_rules import loader
from rule_runtime.testing.trial_builder import TrialBuilder
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
FILES = {file: (SOURCES / file).read_text() for file, _, _ in STYLES.values()}


@pytest.fixture(autouse=True)
def _without_alias() -> Iterator[None]:
    smdebug_alias.uninstall()
    yield
    smdebug_alias.uninstall()


@pytest.fixture
def configure(custom_rules: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """Deploys the files of the styles; returns what makes a job's configuration of one."""
    made: Callable[..., dict[str, Any]] = custom_rules(FILES)
    return made


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


def upload(pipeline: Pipeline, run: TrialBuilder, root: str, *rules: dict[str, Any]) -> None:
    """Write what a run saved, as a hook does it: the values of a step, then its index."""
    name = root.partition("/")[0]
    pipeline.put_job(root=root, training_job_name=name, debug_rule_configurations=rules)
    for key in [*run.store.list("events/"), *run.store.list("index/"), END_MARKER]:
        pipeline.put(key, run.store.get(key), root)


@pytest.mark.parametrize("style", STYLES)
def test_each_style_finds_the_issue(
    pipeline: Pipeline, configure: Callable[..., dict[str, Any]], style: str
) -> None:
    file, parameters, first = STYLES[style]
    upload(pipeline, run_of(is_sick=False), OTHER_ROOT)  # of a job that asks for no rule
    pipeline.deliver()
    upload(pipeline, run_of(is_sick=True), ROOT, configure(file, **parameters))
    records = pipeline.receive()
    while more := [r for r in pipeline.receive() if r["body"] not in {x["body"] for x in records}]:
        records += more
    random.Random(style).shuffle(records)
    for record in records:  # one at a time, each by a process that knows nothing
        pipeline.forget()
        assert pipeline.invoke([record]) == []
    pipeline.deliver()
    reported = pipeline.verdict()
    assert reported["RuleEvaluationStatus"] == "IssuesFound"
    assert f"at step {first} resulted in the condition being met" in reported["StatusDetails"]
    counts = json.loads(pipeline.state_item()["counts"]["S"])
    assert (counts["evaluated"], counts["not_evaluated"], counts["failure"]) == (6, 0, "")
    evidence = json.loads(pipeline.state_item()["evidence"]["S"])
    assert (evidence["first_step"], evidence["last_step"]) == (first, 25)


@pytest.mark.parametrize("style", STYLES)
def test_each_style_passes_a_healthy_run(
    pipeline: Pipeline, configure: Callable[..., dict[str, Any]], style: str
) -> None:
    file, parameters, _ = STYLES[style]
    upload(pipeline, run_of(is_sick=True), OTHER_ROOT)
    upload(pipeline, run_of(is_sick=False), ROOT, configure(file, **parameters))
    pipeline.deliver()
    assert pipeline.verdict()["RuleEvaluationStatus"] == "NoIssuesFound"


def test_a_rule_that_raises_ends_as_error_with_its_line_and_harms_no_other_job(
    pipeline: Pipeline, custom_rules: Callable[..., Any]
) -> None:
    code = FILES["documented.py"].replace(" < self.threshold", " < self.treshold")
    broken = custom_rules({"broken.py": code})("broken.py", **STYLES["documented"][1])
    upload(pipeline, run_of(is_sick=True), ROOT, broken)
    run = TrialBuilder(MemoryStore(), run=RUN)
    run.step(0, {"nothing": [1.0]})  # here the rule has nothing to stumble over
    run.end()
    upload(pipeline, run, OTHER_ROOT, broken)
    pipeline.deliver()
    by_job = {event["TrainingJobName"]: event for event in pipeline.announced()}
    (reported,) = by_job["mnist-7"]["DebugRuleEvaluationStatuses"]
    assert reported["RuleEvaluationStatus"] == "Error"
    assert "has no attribute 'treshold'" in reported["StatusDetails"]
    assert (
        "(broken.py, line 16: if abs_mean < self.treshold:), at step 0" in reported["StatusDetails"]
    )
    (other,) = by_job["mnist-6"]["DebugRuleEvaluationStatuses"]
    assert other["RuleEvaluationStatus"] == "NoIssuesFound"

    version = pipeline.state_item()["version"]
    pipeline.put_step(30, sequence=7)
    pipeline.deliver()
    assert pipeline.state_item()["version"] == version, "it is given up for this run"
    assert pipeline.statuses() == []


def test_a_file_that_was_changed_is_not_run(
    pipeline: Pipeline, custom_rules: Callable[..., Any]
) -> None:
    configure = custom_rules(FILES, pinned={"native.py": "0" * 64})
    upload(pipeline, run_of(is_sick=True), ROOT, configure("native.py", **STYLES["native"][1]))
    pipeline.deliver()
    reported = pipeline.verdict()
    assert reported["RuleEvaluationStatus"] == "Error"
    assert f"but {'0' * 64} is pinned" in reported["StatusDetails"]
    custom_rules(FILES)
    pipeline.put_marker()
    pipeline.deliver()
    assert pipeline.verdict()["RuleEvaluationStatus"] == "IssuesFound", "after it was corrected"


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_file_that_is_not_there_is_told_until_somebody_uploads_it(
    pipeline: Pipeline,
    custom_rules: Callable[..., Any],
    is_refused: bool,
) -> None:
    """Who may not list the bucket is told that access is denied, not that nothing is there."""
    configure = custom_rules(FILES, pinned={"late.py": "0" * 64})
    if is_refused:
        get = clients.s3().get_object

        def refused(**arguments: Any) -> Any:
            if arguments["Bucket"] == "rules":
                denied = {"Error": {"Code": "AccessDenied", "Message": "Access Denied"}}
                raise ClientError(denied, "GetObject")
            return get(**arguments)

        pipeline.patch.setattr(clients.s3(), "get_object", refused)
    upload(pipeline, run_of(is_sick=True), ROOT, configure("late.py", **STYLES["native"][1]))
    pipeline.deliver()
    reported = pipeline.verdict()
    assert reported["RuleEvaluationStatus"] == "Error"
    assert "s3://rules/late.py" in reported["StatusDetails"]
    pipeline.patch.undo()


def test_only_pinned_files_are_read(
    pipeline: Pipeline, configure: Callable[..., dict[str, Any]]
) -> None:
    """Whatever else a job names is left to the function that runs no files, which tells it."""
    pipeline.aws("s3").put_object(Bucket="rules", Key="other.py", Body=FILES["native.py"].encode())
    pipeline.put("rule.py", FILES["native.py"].encode())
    pipeline.patch.setattr(loader, "load_custom_rule", None)  # nothing comes so far
    named = (
        *("s3://rules/other.py", "s3://tensors/mnist-7/debug-output/rule.py", "/etc/passwd.py"),
        *("s3://rules/./native.py", "s3://rules//native.py", "s3://rules/native.py/", "native.py"),
        *("S3://rules/native.py", "s3://rules/Native.py", "", None, ["s3://rules/native.py"], {}),
    )
    rules: list[Any] = [
        {"RuleConfigurationName": f"rule-{n}", "RuleParameters": {"source_s3_uri": source}}
        for n, source in enumerate(named)
    ]
    upload(pipeline, run_of(is_sick=True), ROOT, *rules)
    pipeline.deliver()
    assert pipeline.statuses() == []


class TestSettings:
    VARIABLES: ClassVar = {
        environment.RULE_CONFIGURATION_NAME: CUSTOM_RULES,
        environment.STATE_TABLE_NAME: "states",
        environment.TENSOR_BUCKET_NAMES: "tensors",
    }

    def test_both_variables_pin_the_files(self) -> None:
        none = EvaluateRuleSettings.from_environment(self.VARIABLES).custom_rules
        assert none.sha256_of("s3:///a.py") is None
        files = json.dumps({"a.py": "ab" * 32})
        more = {environment.CUSTOM_RULE_BUCKET: "rules", environment.CUSTOM_RULES: files}
        found = EvaluateRuleSettings.from_environment({**self.VARIABLES, **more}).custom_rules
        assert found == CustomRules("rules", {"a.py": "ab" * 32})
        assert found.sha256_of("s3://rules/a.py") == "ab" * 32

    @pytest.mark.parametrize(
        ("bucket", "files", "reported"),
        [
            ("rules", "", "STEPWATCH_CUSTOM_RULES is not set"),
            ("", "{}", "STEPWATCH_CUSTOM_RULE_BUCKET is not set"),
            ("rules", '{"a.py": "abc"}', "has 'abc' for 'a.py': 64 hexadecimal digits expected"),
            ("rules", '["a.py"]', "a JSON object of strings expected"),
            ("Rules!", "{}", "no name of a bucket"),
        ],
    )
    def test_one_without_the_other_is_reported(
        self, bucket: str, files: str, reported: str
    ) -> None:
        more = {environment.CUSTOM_RULE_BUCKET: bucket, environment.CUSTOM_RULES: files}
        with pytest.raises(SettingsError, match=reported):
            EvaluateRuleSettings.from_environment({**self.VARIABLES, **more})
