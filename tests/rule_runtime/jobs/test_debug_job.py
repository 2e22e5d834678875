"""A job as its owner sees it, from its submission to its verdicts."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import boto3
import pytest
from moto.sagemaker.models import sagemaker_backends

from hook_layer.format.end_marker import EndMarker
from hook_layer.format.job_file import JobFile, StopFile, parse_stop_file
from hook_layer.format.paths import END_MARKER, JOB_FILE, STOP_FILE
from hook_layer.storage.base import Store, open_store
from rule_runtime.configuration import Rule, TensorBoardOutputConfig, rule_configs
from rule_runtime.engine.outcome import RuleStatus
from rule_runtime.engine.result_file import RuleResult, result_place
from rule_runtime.jobs import DebugJob, DeploymentError, PreparedJob, prepare
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.jobs.conftest import OUTPUT, REGION, RULE_BUCKET, Account

NOW = 1_795_212_403.0
RULES = [
    Rule.sagemaker(rule_configs.vanishing_gradient()),
    Rule.sagemaker(rule_configs.loss_not_decreasing(), name="slow loss"),
]
STARTED = "2026-11-20T10:00:00+00:00"
FOUND = (
    "RuleEvaluationConditionMet: Evaluation of the rule VanishingGradient at step 500 resulted in "
    "the condition being met\ngradient/Net_conv1.weight: mean(|g|) 3.1e-09 < 1e-07"
)


@dataclass
class Run:
    """What a hook and the evaluators do to the files of a job."""

    root: str
    name: str = "mnist-7"
    run_id: str = "run-1"
    platform: str = "local"
    rules: Sequence[dict[str, Any]] | None = None
    store: Store = field(init=False)

    def __post_init__(self) -> None:
        self.store = open_store(self.root)

    def begin(self) -> None:
        rules = None if self.rules is None else tuple(self.rules)
        job = JobFile(
            self.name,
            self.run_id,
            self.platform,
            STARTED,
            debug_rule_configurations=rules,
        )
        self.store.put(JOB_FILE, job.encode())

    def judge(self, rule: str, status: str, details: str = "it was judged") -> None:
        folder, key = result_place(self.store.uri, rule)
        result = RuleResult(
            training_job_name=self.name,
            run_id=self.run_id,
            root_uri=self.store.uri,
            rule=rule,
            status=RuleStatus(status),
            details=details,
            changed_at_ms=int(NOW * 1000),
        )
        open_store(folder).put(key, json.dumps(result.to_json()).encode())

    def ask_to_stop(self) -> None:
        self.store.put(STOP_FILE, StopFile("why", STARTED, self.run_id).encode())

    def end(self) -> None:
        self.store.put(END_MARKER, EndMarker(self.run_id).encode())


@pytest.fixture(params=["folder", "s3"])
def prepared(request: pytest.FixtureRequest, account: Account, tmp_path: Path) -> PreparedJob:
    output = str(tmp_path) if request.param == "folder" else OUTPUT
    return prepare(
        job_name="mnist-7", output_path=output, rules=RULES, tensorboard=TensorBoardOutputConfig()
    )


def run_of(job: PreparedJob, **arguments: Any) -> Run:
    rules = job.configuration.to_json(job.job_name).get("DebugRuleConfigurations")
    return Run(job.debug_output, **{"rules": rules, **arguments})


def statuses(summary: Sequence[Any]) -> list[tuple[str, str]]:
    return [(each["RuleConfigurationName"], each["RuleEvaluationStatus"]) for each in summary]


IN_PROGRESS = [("VanishingGradient", "InProgress"), ("slow loss", "InProgress")]


class TestSummary:
    def test_every_rule_is_there_from_the_submission_on(self, prepared: PreparedJob) -> None:
        job = prepared.job()
        assert statuses(job.rule_job_summary()) == IN_PROGRESS
        run_of(prepared).begin()
        assert statuses(job.rule_job_summary()) == IN_PROGRESS

    def test_the_shape_is_the_known_one(self, prepared: PreparedJob) -> None:
        run = run_of(prepared)
        run.begin()
        run.judge("VanishingGradient", "IssuesFound", FOUND)
        found, waiting = prepared.job().rule_job_summary()
        assert list(found) == [
            "RuleConfigurationName",
            "RuleEvaluationJobArn",
            "RuleEvaluationStatus",
            "StatusDetails",
            "LastModifiedTime",
        ]
        assert found["RuleEvaluationStatus"] == "IssuesFound"
        assert found["StatusDetails"] == FOUND + "\n"
        assert found["LastModifiedTime"] == datetime.fromtimestamp(NOW, timezone.utc)
        assert waiting["LastModifiedTime"] == datetime.fromisoformat(STARTED)
        assert waiting["StatusDetails"].endswith("\n")
        assert found["RuleEvaluationJobArn"].endswith(
            "mnist-7/rule-output/VanishingGradient/status.json"
        )
        if prepared.output_path == OUTPUT:
            assert found["RuleEvaluationJobArn"].startswith("arn:aws:s3:::my-bucket/output/")
            key = found["RuleEvaluationJobArn"].partition(":::")[2]
            assert open_store("s3://my-bucket/").exists(key.partition("/")[2])

    def test_a_verdict_on_an_earlier_run_is_none_on_this(self, prepared: PreparedJob) -> None:
        earlier = run_of(prepared, run_id="run-0")
        earlier.begin()
        earlier.judge("VanishingGradient", "IssuesFound")
        run_of(prepared).begin()
        assert statuses(prepared.job().rule_job_summary()) == IN_PROGRESS

    def test_a_result_that_is_none_counts_as_missing(
        self, prepared: PreparedJob, caplog: pytest.LogCaptureFixture
    ) -> None:
        run = run_of(prepared)
        run.begin()
        folder, key = result_place(run.store.uri, "slow loss")
        for content in (b"", b"[]", b"{}", b'{"DebugRuleEvaluationStatuses": [{}]}', b"\xff"):
            open_store(folder).put(key, content)
            assert statuses(prepared.job().rule_job_summary()) == IN_PROGRESS
        assert "status.json" in caplog.text

    def test_details_stay_within_the_apis_limit(self, prepared: PreparedJob) -> None:
        run = run_of(prepared)
        run.begin()
        run.judge("slow loss", "Error", "x" * 1024)
        (_, reported) = prepared.job().rule_job_summary()
        assert len(reported["StatusDetails"]) == 1024
        assert reported["StatusDetails"].endswith("x\n")

    def test_no_rules_are_none(self, tmp_path: Path) -> None:
        job = prepare(job_name="mnist-7", output_path=tmp_path, rules=[]).job()
        assert job.rule_job_summary() == job.wait_for_rules() == []

    def test_a_job_without_a_hook_has_none(self, tmp_path: Path) -> None:
        job = prepare(job_name="mnist-7", output_path=tmp_path, hook_config=False).job()
        assert job.rule_job_summary() == []
        with pytest.raises(ValueError, match="the job mnist-7 is unknown"):
            job.wait_for_rules()

    @pytest.mark.usefixtures("account")
    def test_without_a_deployment_the_reason_is_given(self) -> None:
        job = prepare(job_name="mnist-7", output_path=OUTPUT, rules=RULES)
        run = run_of(job)
        run.begin()
        reason = "no deployment evaluates it: the stack Stepwatch-dev cannot be described"
        for member in job.job().rule_job_summary():
            assert member["RuleEvaluationStatus"] == "InProgress"
            assert member["StatusDetails"].startswith(reason)
        run.end()
        for member in job.job().rule_job_summary():
            assert member["RuleEvaluationStatus"] == "Error"
            assert reason in member["StatusDetails"]

    def test_deployed_rules_are_those_of_a_job_that_names_none(self, account: Account) -> None:
        account.deploy({"NonFinite": "a", "LossDiverging": "b", "#job-rules": "c"}, {})
        job = prepare(job_name="mnist-7", output_path=OUTPUT)
        expected = [("NonFinite", "InProgress"), ("LossDiverging", "InProgress")]
        assert statuses(job.job().rule_job_summary()) == expected
        run = run_of(job)
        run.begin()
        run.judge("LossDiverging", "NoIssuesFound")
        run.judge("Another", "Error")
        assert statuses(job.job().rule_job_summary()) == [
            ("NonFinite", "InProgress"),
            ("LossDiverging", "NoIssuesFound"),
            ("Another", "Error"),
        ]

    @pytest.mark.usefixtures("account")
    def test_where_nobody_tells_what_is_deployed_the_results_do(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        job = prepare(job_name="mnist-7", output_path=OUTPUT)
        run = run_of(job)
        run.begin()
        assert job.job().rule_job_summary() == []
        assert "which rules are deployed is not known" in caplog.text
        run.judge("NonFinite", "NoIssuesFound")
        assert statuses(job.job().rule_job_summary()) == [("NonFinite", "NoIssuesFound")]


class Steps:
    """A clock that `sleep` moves, and at each of whose moves something happens."""

    def __init__(self, *happenings: Callable[[], None]) -> None:
        self.now = NOW
        self.slept: list[float] = []
        self._happenings = list(happenings)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        if self._happenings:
            self._happenings.pop(0)()

    def job(self, prepared: PreparedJob) -> DebugJob:
        return DebugJob(
            prepared.job_name, prepared.output_path, clock=lambda: self.now, sleep=self.sleep
        )


class TestWaiting:
    def test_tells_each_change_once_and_ends_with_the_last_rule(
        self, prepared: PreparedJob
    ) -> None:
        run = run_of(prepared)
        steps = Steps(
            run.begin,
            lambda: run.judge("VanishingGradient", "IssuesFound"),
            lambda: None,
            lambda: run.judge("slow loss", "Error"),
        )
        lines: list[str] = []
        summary = steps.job(prepared).wait_for_rules(poll_s=7, out=lines.append)
        assert lines == [
            "VanishingGradient: InProgress",
            "slow loss: InProgress",
            "VanishingGradient: IssuesFound",
            "slow loss: Error",
        ]
        assert steps.slept == [7] * 4
        assert statuses(summary) == [("VanishingGradient", "IssuesFound"), ("slow loss", "Error")]

    def test_prints(self, prepared: PreparedJob, capsys: pytest.CaptureFixture[str]) -> None:
        run = run_of(prepared)
        run.begin()
        run.judge("VanishingGradient", "NoIssuesFound")
        run.judge("slow loss", "Stopped")
        Steps().job(prepared).wait_for_rules()
        assert capsys.readouterr().out == "VanishingGradient: NoIssuesFound\nslow loss: Stopped\n"

    def test_gives_up_in_time(self, prepared: PreparedJob) -> None:
        steps = Steps()
        with pytest.raises(TimeoutError, match=r"after 12 s VanishingGradient, slow loss have not"):
            steps.job(prepared).wait_for_rules(timeout_s=12, out=lambda _: None)
        assert steps.slept == [5.0] * 3

    def test_rules_that_nobody_names_are_waited_for_until_the_run_ends(
        self, tmp_path: Path
    ) -> None:
        prepared = prepare(job_name="mnist-7", output_path=tmp_path)
        run = run_of(prepared)
        steps = Steps(run.begin, lambda: run.judge("NonFinite", "NoIssuesFound"), run.end)
        summary = steps.job(prepared).wait_for_rules(out=lambda _: None)
        assert statuses(summary) == [("NonFinite", "NoIssuesFound")]
        silent = Steps(run_of(prepared, run_id="run-2").begin, run_of(prepared, run_id="run-2").end)
        assert silent.job(prepared).wait_for_rules(out=lambda _: None) != []


class TestDescribe:
    def test_the_files_tell_the_life_of_a_job(self, prepared: PreparedJob) -> None:
        run, job = run_of(prepared), prepared.job()

        def reported() -> tuple[str, str]:
            described = job.describe()
            return described["TrainingJobStatus"], described["SecondaryStatus"]

        assert reported() == ("InProgress", "Starting")
        run.begin()
        assert reported() == ("InProgress", "Training")
        run.ask_to_stop()
        assert reported() == ("Stopping", "Stopping")
        run.end()
        assert reported() == ("Stopped", "Stopped")
        run.store.delete(STOP_FILE)
        assert reported() == ("Completed", "Completed")

    def test_what_another_run_left_says_nothing(self, prepared: PreparedJob) -> None:
        earlier = run_of(prepared, run_id="run-0")
        earlier.ask_to_stop()
        earlier.end()
        run_of(prepared).begin()
        assert prepared.job().describe()["SecondaryStatus"] == "Training"

    def test_members(self, prepared: PreparedJob) -> None:
        described = prepared.job().describe()
        assert described["TrainingJobName"] == "mnist-7"
        assert described["DebugHookConfig"]["S3OutputPath"] == prepared.output_path
        assert statuses(described["DebugRuleEvaluationStatuses"]) == IN_PROGRESS

    def test_paths_and_trial(self, prepared: PreparedJob) -> None:
        job = prepared.job()
        assert job.name == "mnist-7"
        assert job.latest_job_debugger_artifacts_path() == job.debug_output
        assert job.debug_output == open_store(prepared.debug_output).uri
        assert job.latest_job_tensorboard_artifacts_path() == job.tensorboard_output
        assert job.tensorboard_output == prepared.tensorboard_output
        run = run_of(prepared)
        run.begin()
        TrialBuilder(run.store, run=run.run_id).step(0, {"loss": [1.0]})
        assert job.trial().tensor("loss").value(0) == [1.0]
        assert job.debug_output in repr(job)

    def test_what_stepwatch_run_left_is_found_in_the_folder_itself(self, tmp_path: Path) -> None:
        run = Run(str(tmp_path / "train-1"), name="train-1")
        run.begin()
        run.judge("NonFinite", "NoIssuesFound")
        job = DebugJob("train-1", tmp_path)
        assert job.debug_output == run.store.uri
        assert statuses(job.rule_job_summary()) == [("NonFinite", "NoIssuesFound")]
        assert job.tensorboard_output is None


class TestReport:
    def test_a_page_about_the_job_so_far(self, prepared: PreparedJob, tmp_path: Path) -> None:
        run = run_of(prepared)
        run.begin()
        trial = TrialBuilder(run.store, run=run.run_id)
        for step in range(3):
            trial.step(step, {"CrossEntropyLoss_output_0": [1.0]})
        run.judge("VanishingGradient", "IssuesFound", FOUND)
        page = tmp_path / "report.html"
        prepared.job().report().save(page)
        assert "VanishingGradient" in page.read_text()


class TestStop:
    def test_the_loop_is_asked_to(self, prepared: PreparedJob) -> None:
        run = run_of(prepared)
        run.begin()
        Steps().job(prepared).stop()
        request = parse_stop_file(run.store.get(STOP_FILE), file=STOP_FILE)
        assert request.run_id == "run-1"
        assert request.requested_at == "2026-11-20T22:06:43+00:00"
        assert "DebugJob.stop()" in request.reason

    def test_a_run_that_has_ended_stays_as_it_is(self, prepared: PreparedJob) -> None:
        run = run_of(prepared)
        run.begin()
        run.end()
        prepared.job().stop()
        assert not run.store.exists(STOP_FILE)

    def test_a_run_that_has_not_begun_cannot_be_stopped(self, prepared: PreparedJob) -> None:
        with pytest.raises(ValueError, match="mnist-7 has not begun"):
            prepared.job().stop()


class TestSageMaker:
    def started(self, account: Account, **members: Any) -> PreparedJob:
        job = prepare(job_name="mnist-7", output_path=OUTPUT, rules=RULES)
        account.start_training_job(TrainingJobName="mnist-7", **members)
        # moto forgets the environment, and ends jobs at once.
        fake = sagemaker_backends["123456789012"][REGION].training_jobs["mnist-7"]
        fake.environment = dict(job.environment)
        fake.training_job_status = fake.secondary_status = "InProgress"
        return job

    def test_the_name_is_enough(self, account: Account) -> None:
        prepared = self.started(account)
        job = DebugJob("mnist-7")
        assert job.debug_output == prepared.debug_output
        assert statuses(job.rule_job_summary()) == IN_PROGRESS
        described = job.describe()
        assert described["TrainingJobArn"].endswith("training-job/mnist-7")
        assert described["OutputDataConfig"] == {"S3OutputPath": OUTPUT}
        assert described["DebugHookConfig"]["S3OutputPath"] == OUTPUT
        assert "ResponseMetadata" not in described

    @pytest.mark.usefixtures("account")
    def test_another_name_than_the_prepared_one(self) -> None:
        prepared = prepare(job_name="mnist", output_path=OUTPUT, rules=RULES)
        job = prepared.job("mnist-20261121000000")
        assert job.debug_output == f"{OUTPUT}/mnist-20261121000000/debug-output/"
        assert statuses(job.rule_job_summary()) == IN_PROGRESS

    def test_a_job_whose_hook_wrote_nothing_ends_with_errors(self, account: Account) -> None:
        self.started(account)
        fake = sagemaker_backends["123456789012"][REGION].training_jobs["mnist-7"]
        fake.training_job_status = fake.secondary_status = "Failed"
        summary = DebugJob("mnist-7").wait_for_rules(out=lambda _: None)
        assert [each["RuleEvaluationStatus"] for each in summary] == ["Error"] * 2
        assert "ended as Failed and its hook wrote nothing" in summary[0]["StatusDetails"]

    def test_a_job_of_its_own_debugger(self, account: Account) -> None:
        native = [
            {"RuleConfigurationName": name, "RuleEvaluatorImage": "image"}
            for name in ("VanishingGradient", "Overfit")
        ]
        account.start_training_job(
            TrainingJobName="native",
            DebugHookConfig={"S3OutputPath": OUTPUT},
            DebugRuleConfigurations=native,
            TensorBoardOutputConfig={"S3OutputPath": OUTPUT},
        )
        fake = sagemaker_backends["123456789012"][REGION].training_jobs["native"]
        arn = f"arn:aws:sagemaker:{REGION}:123456789012:processing-job/native-over-0123abcd"
        fake.debug_rule_evaluation_statuses = [
            {
                "RuleConfigurationName": "Overfit",
                "RuleEvaluationJobArn": arn,
                "RuleEvaluationStatus": "NoIssuesFound",
            }
        ]
        job = DebugJob("native")
        assert job.debug_output == f"{OUTPUT}/native/debug-output/"
        assert job.tensorboard_output == f"{OUTPUT}/native/tensorboard-output/"
        summary = job.rule_job_summary()
        assert statuses(summary) == [
            ("VanishingGradient", "InProgress"),
            ("Overfit", "NoIssuesFound"),
        ]
        assert summary[1]["RuleEvaluationJobArn"] == arn
        assert summary[0]["LastModifiedTime"].tzinfo is not None
        url = unquote(unquote(job.rule_log_urls()["Overfit"].replace("$", "%")))
        assert url.endswith(
            "log-group//aws/sagemaker/ProcessingJobs/log-events/native-Overfit-0123abcd"
        )

    @pytest.mark.usefixtures("account")
    def test_a_job_that_nobody_knows(self) -> None:
        with pytest.raises(ValueError, match="SageMaker runs no job 'typo' in eu-west-1"):
            DebugJob("typo")

    @pytest.mark.parametrize(
        ("missing", "reported"),
        [
            ("both", r"neither a Region nor credentials are configured; set AWS_REGION and AWS_PR"),
            ("region", r"no Region is configured; set AWS_REGION, or"),
            ("credentials", r"no credentials are configured; set AWS_PROFILE \(or AWS_ACC.*ess"),
        ],
    )
    def test_where_nobody_can_be_asked(
        self, account: Account, monkeypatch: pytest.MonkeyPatch, missing: str, reported: str
    ) -> None:
        account.start_training_job(TrainingJobName="mnist-7")
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.delenv("AWS_PROFILE", raising=False)
        for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
            monkeypatch.setenv(name, "/dev/null")
        if missing != "credentials":
            for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
                monkeypatch.delenv(name)
        if missing != "region":
            for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
                monkeypatch.delenv(name, raising=False)
        with pytest.raises(
            ValueError, match=f"whether SageMaker runs 'mnist-7'.*{reported}.*output_p"
        ):
            DebugJob("mnist-7", session=boto3.Session())

    def test_a_job_without_any_hook(self, account: Account) -> None:
        account.start_training_job(TrainingJobName="plain")
        with pytest.raises(ValueError, match="names no output of a hook"):
            DebugJob("plain")


class TestLogs:
    def test_pages_of_the_evaluators_filtered_by_job(self, account: Account) -> None:
        sources = {"quiet.py": "0" * 64}
        account.deploy(
            {"VanishingGradient": "g-1", "#job-rules": "g-2", "#custom-rules": "g/3"}, sources
        )
        custom = Rule.custom("Q", source=f"s3://{RULE_BUCKET}/quiet.py", rule_to_invoke="Q")
        job = prepare(job_name="mnist-7", output_path=OUTPUT, rules=[*RULES, custom]).job()
        urls = job.rule_log_urls()
        assert list(urls) == ["VanishingGradient", "slow loss", "Q"]
        console = f"https://{REGION}.console.aws.amazon.com/cloudwatch/home?region={REGION}"
        for url, group in zip(urls.values(), ("g-1", "g-2", "g/3"), strict=True):
            page, _, pattern = url.partition("/log-events$3FfilterPattern$3D")
            quoted = group.replace("/", "$252F")
            assert page == f"{console}#logsV2:log-groups/log-group/{quoted}"
            text = unquote(unquote(pattern.replace("$", "%")))
            assert text == '{ $.training_job_name = "mnist-7" }'

    @pytest.mark.usefixtures("account")
    def test_without_a_deployment(self) -> None:
        job = prepare(job_name="mnist-7", output_path=OUTPUT, rules=RULES).job()
        with pytest.raises(DeploymentError, match="Stepwatch-dev cannot be described"):
            job.rule_log_urls()

    def test_a_rule_that_the_deployment_does_not_evaluate(self, account: Account) -> None:
        account.deploy({"VanishingGradient": "g-1"}, {})
        job = prepare(job_name="mnist-7", output_path=OUTPUT, rules=RULES).job()
        with pytest.raises(DeploymentError, match="does not evaluate the rule slow loss"):
            job.rule_log_urls()

    def test_a_job_in_a_folder_has_none(self, tmp_path: Path) -> None:
        job = prepare(job_name="mnist-7", output_path=tmp_path, rules=RULES).job()
        assert job.rule_log_urls() == {}


def test_names_that_infra_and_the_functions_share() -> None:
    from lambdas.contracts import console, environment, events, name_list, stopping
    from rule_runtime.jobs import console_links, deployment, prepared_job

    assert deployment.JOB_RULES_GROUP == events.JOB_RULES
    assert deployment.CUSTOM_RULES_GROUP == events.CUSTOM_RULES
    assert deployment._LOG_GROUPS == environment.RULE_LOG_GROUPS
    assert deployment._CUSTOM_RULES == environment.CUSTOM_RULES
    assert deployment._GROUPED_RULES == environment.GROUPED_RULES
    assert deployment._CUSTOM_RULE_BUCKET == environment.CUSTOM_RULE_BUCKET
    for first in ("/stepwatch/dev/ab/A", "https://sqs/1/S-A", "Stepwatch-old-123"):
        listed = {"A": first, "B": "", "#job-rules": "_job-rules"}
        resolved = deployment.resolve_names(json.dumps(listed))
        assert resolved == name_list.resolve_names(listed)
    assert console_links.PARTITION_DOMAINS == console.CONSOLE_DOMAINS
    assert prepared_job.STOP_TAG == stopping.STOP_TAG
