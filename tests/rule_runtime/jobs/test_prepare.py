"""What `prepare` stores, and what it refuses before a job costs anything."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import boto3
import pytest

from hook_layer.configuration.configuration_file import read_configuration_file
from hook_layer.configuration.hook_json import load_hook_configuration
from hook_layer.configuration.places import Outputs, resolve_targets
from hook_layer.format.job_file import JobFile
from hook_layer.format.paths import JOB_FILE
from hook_layer.storage.base import open_store
from rule_runtime.configuration import (
    SMS,
    ActionList,
    CollectionConfig,
    DebuggerHookConfig,
    Email,
    Rule,
    StopTraining,
    TensorBoardOutputConfig,
    rule_configs,
)
from rule_runtime.jobs import DeploymentError, PreparedJob, prepare
from tests.rule_runtime.jobs.conftest import BUCKET, OUTPUT, REGION, RULE_BUCKET, Account

VANISHING = Rule.sagemaker(rule_configs.vanishing_gradient())
SOURCE = "from rule_runtime import Rule\n"


def stored(job: PreparedJob, account: Account | None = None) -> dict[str, Any]:
    uri = job.environment["STEPWATCH_CONFIG"]
    text = Path(uri).read_text() if account is None else account.text(uri)
    content: dict[str, Any] = json.loads(text)
    return content


def in_folder(folder: Path, **arguments: Any) -> PreparedJob:
    return prepare(**{"job_name": "mnist-7", "output_path": folder, **arguments})


class TestPlaces:
    def test_everything_of_a_job_lies_below_its_name(self, account: Account) -> None:
        job = prepare(
            job_name="mnist-7",
            output_path=OUTPUT,
            rules=[VANISHING],
            tensorboard=TensorBoardOutputConfig(),
        )
        assert job.debug_output == f"{OUTPUT}/mnist-7/debug-output/"
        assert job.tensorboard_output == f"{OUTPUT}/mnist-7/tensorboard-output/"
        assert job.environment == {"STEPWATCH_CONFIG": f"{OUTPUT}/mnist-7/stepwatch.json"}
        assert account.keys() == ["output/mnist-7/stepwatch.json"]

    @pytest.mark.parametrize("end", ["", "/"])
    def test_a_hook_with_this_environment_writes_there(self, tmp_path: Path, end: str) -> None:
        job = prepare(
            job_name="mnist-7",
            output_path=f"{tmp_path}{end}",
            tensorboard=TensorBoardOutputConfig(),
            checkpoint_s3_uri="s3://other/checkpoints",
            checkpoint_local_path=str(tmp_path / "checkpoints"),
        )
        configuration = load_hook_configuration(environ=job.environment)
        targets = resolve_targets(Outputs(by_file=True), configuration.job, job.environment)
        assert targets.out.uri == open_store(job.debug_output).uri
        assert targets.tensorboard is not None
        assert job.tensorboard_output is not None
        assert targets.tensorboard.uri == open_store(job.tensorboard_output).uri
        assert targets.checkpoint is not None
        assert targets.checkpoint.s3_uri == "s3://other/checkpoints"
        assert targets.checkpoint.local_path == tmp_path / "checkpoints"

    def test_an_output_path_of_the_hooks_own_counts(self, tmp_path: Path) -> None:
        hook = DebuggerHookConfig(s3_output_path=str(tmp_path / "hook"))
        job = in_folder(tmp_path, hook_config=hook)
        assert job.debug_output == f"{tmp_path}/hook/mnist-7/debug-output/"
        assert Path(job.environment["STEPWATCH_CONFIG"]).parent == tmp_path / "hook" / "mnist-7"

    def test_a_folder_may_be_relative(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert in_folder(Path("runs")).debug_output == f"{tmp_path}/runs/mnist-7/debug-output/"

    def test_folders_need_no_boto3(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(__import__("sys").modules, "boto3", None)
        job = in_folder(tmp_path, rules=[VANISHING])
        assert [each["RuleEvaluationStatus"] for each in job.job().rule_job_summary()] == [
            "InProgress"
        ]

    @pytest.mark.parametrize("path", ["", "  ", "s3:/bucket/x", "s3://", "gs://bucket/x"])
    def test_what_is_no_output_path_is_refused(self, path: str) -> None:
        with pytest.raises(ValueError, match="output_path"):
            prepare(job_name="mnist-7", output_path=path)


class TestNames:
    def test_a_base_becomes_a_name_that_no_other_job_has(self, tmp_path: Path) -> None:
        def named(base: str) -> str:
            return prepare(
                base_job_name=base, output_path=tmp_path, clock=lambda: 1_795_212_403.0
            ).job_name

        names = {named("mnist") for _ in range(20)}
        assert len(names) == 20
        for name in names:
            assert re.fullmatch(r"mnist-20261120-\d{6}-[0-9a-f]{6}", name)
        long = named("x" * 63)
        assert len(long) == 63
        assert "--" not in named("a-" * 20 + "a" * 23)

    @pytest.mark.parametrize("name", ["", "a_b", "-a", "a-", "a/b", "x" * 64, "ä"])
    def test_names_that_the_api_would_refuse(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(ValueError, match=r"^job_name is"):
            prepare(job_name=name, output_path=tmp_path)
        with pytest.raises(ValueError, match=r"^base_job_name is"):
            prepare(base_job_name=name, output_path=tmp_path)

    def test_one_of_both_is_given(self, tmp_path: Path) -> None:
        for names in ({}, {"job_name": "a", "base_job_name": "b"}):
            with pytest.raises(ValueError, match="give one of them"):
                prepare(output_path=tmp_path, **names)


class TestConfiguration:
    def test_rules_without_a_hook_configuration(self, tmp_path: Path) -> None:
        content = stored(in_folder(tmp_path, rules=[VANISHING]))
        assert content["TrainingJobName"] == "mnist-7"
        (collection,) = content["DebugHookConfig"]["CollectionConfigurations"]
        assert collection["CollectionName"] == "gradients"
        (rule,) = content["DebugRuleConfigurations"]
        assert rule["RuleConfigurationName"] == "VanishingGradient"

    def test_what_rules_ask_for_is_merged_and_conflicts_are_reported(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        hook = DebuggerHookConfig(
            hook_parameters={"save_interval": 50},
            collection_configs=[CollectionConfig("gradients", {"save_interval": "100"})],
        )
        content = stored(in_folder(tmp_path, hook_config=hook, rules=[VANISHING]))
        (collection,) = content["DebugHookConfig"]["CollectionConfigurations"]
        assert collection["CollectionParameters"] == {"save_interval": "100"}
        limits = {"max_step_bytes": "16777216", "max_run_bytes": "1073741824"}
        parameters = content["DebugHookConfig"]["HookParameters"]
        assert parameters == {**limits, "save_interval": "50", "include_workers": "auto"}
        (warning,) = caplog.messages
        assert "VanishingGradient: save_interval=500" in warning
        assert "the hook's configuration: save_interval=100" in warning

    def test_no_rules_named_are_those_that_are_deployed(self, tmp_path: Path) -> None:
        assert "DebugRuleConfigurations" not in stored(in_folder(tmp_path))
        assert stored(in_folder(tmp_path, rules=[]))["DebugRuleConfigurations"] == []

    def test_no_hook_at_all(self, tmp_path: Path) -> None:
        job = in_folder(tmp_path, hook_config=False)
        assert job.environment == {"USE_SMDEBUG": "0"}
        assert not list(tmp_path.iterdir())
        with pytest.raises(ValueError, match="no data"):
            in_folder(tmp_path, hook_config=False, rules=[VANISHING])
        with pytest.raises(ValueError, match="leave tensorboard out"):
            in_folder(tmp_path, hook_config=False, tensorboard=TensorBoardOutputConfig())

    def test_actions_are_those_of_each_rule_without_its_own(self, tmp_path: Path) -> None:
        own = Rule.sagemaker(rule_configs.exploding_tensor(), actions=Email("a.b@mail.abc.com"))
        content = stored(in_folder(tmp_path, rules=[VANISHING, own], actions=StopTraining()))
        vanishing, exploding = (
            rule["RuleParameters"]["action_json"] for rule in content["DebugRuleConfigurations"]
        )
        assert "stoptraining" in vanishing
        assert "mnist-7" in vanishing
        assert "a.b@mail.abc.com" in exploding
        assert "Actions" not in content

    def test_actions_without_rules_are_those_of_the_job(self, tmp_path: Path) -> None:
        actions = ActionList(StopTraining(), SMS("+491234"))
        assert stored(in_folder(tmp_path, actions=actions))["Actions"] == [
            {"name": "stoptraining", "training_job_prefix": "mnist-7"},
            {"name": "sms", "endpoint": "+491234"},
        ]

    def test_image_instance_and_volume_of_a_custom_rule_are_kept(self, account: Account) -> None:
        rule = Rule.custom("Q", "image", "ml.t3.medium", 30, "s3://my-rules/q.py", "Q")
        job = prepare(job_name="mnist-7", output_path=OUTPUT, rules=[rule])
        (member,) = stored(job, account)["DebugRuleConfigurations"]
        assert member["RuleEvaluatorImage"] == "image"
        assert (member["InstanceType"], member["VolumeSizeInGB"]) == ("ml.t3.medium", 30)

    def test_what_the_hook_would_refuse_is_refused_now(self, tmp_path: Path) -> None:
        hook = DebuggerHookConfig(hook_parameters={"save_interval": 0})
        with pytest.raises(ValueError, match=r"HookParameters.*save_interval='0'"):
            in_folder(tmp_path, hook_config=hook)
        assert not list(tmp_path.iterdir())

    def test_what_a_rule_would_refuse_is_refused_now(self, tmp_path: Path) -> None:
        wrong = Rule.sagemaker(
            rule_configs.vanishing_gradient(), rule_parameters={"treshold": "1e-8"}
        )
        with pytest.raises(ValueError, match=r"'VanishingGradient'.*treshold.*threshold"):
            in_folder(tmp_path, rules=[wrong])

    def test_a_rule_that_only_the_deployment_may_have(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        rule = Rule.custom("Ours", rule_to_invoke=None)
        assert stored(in_folder(tmp_path, rules=[rule]))["DebugRuleConfigurations"]
        assert "there is no rule 'Ours'" in caplog.text

    def test_the_file_is_one_that_a_hook_reads(self, account: Account) -> None:
        job = prepare(job_name="mnist-7", output_path=OUTPUT, rules=[VANISHING])
        file = read_configuration_file(environ=job.environment)
        assert file.is_own
        assert file.document == stored(job, account)


class TestRegions:
    @pytest.mark.parametrize(
        ("field", "arguments"),
        [
            ("output_path", {"output_path": "s3://elsewhere/x"}),
            ("checkpoint_s3_uri", {"checkpoint_s3_uri": "s3://elsewhere/x"}),
            ("tensorboard", {"tensorboard": TensorBoardOutputConfig("s3://elsewhere/x")}),
            ("hook_config", {"hook_config": DebuggerHookConfig("s3://elsewhere/x")}),
        ],
    )
    def test_a_bucket_of_another_region(
        self, account: Account, field: str, arguments: dict[str, Any]
    ) -> None:
        boto3.client("s3", region_name="us-west-2").create_bucket(
            Bucket="elsewhere", CreateBucketConfiguration={"LocationConstraint": "us-west-2"}
        )
        with pytest.raises(ValueError, match=rf"{field}.*elsewhere is in us-west-2.*{REGION}"):
            prepare(**{"job_name": "mnist-7", "output_path": OUTPUT, **arguments})
        assert account.keys() == []

    @pytest.mark.usefixtures("account")
    def test_the_session_says_which_region(self) -> None:
        session = boto3.Session(region_name="us-west-2")
        with pytest.raises(ValueError, match=f"{BUCKET} is in {REGION}, and the session in us-w"):
            prepare(job_name="mnist-7", output_path=OUTPUT, session=session)

    @pytest.mark.usefixtures("account")
    def test_a_bucket_that_does_not_exist(self) -> None:
        with pytest.raises(OSError, match="aws s3 mb s3://nobodys"):
            prepare(job_name="mnist-7", output_path="s3://nobodys/output")


class TestCustomRules:
    def rule(self, folder: Path, text: str = SOURCE) -> Rule:
        path = folder / "quiet.py"
        path.write_text(text)
        return Rule.custom("Quiet", source=str(path), rule_to_invoke="Quiet")

    def test_a_pinned_file_goes_where_it_is_run_from(
        self, account: Account, tmp_path: Path
    ) -> None:
        sha256 = hashlib.sha256(SOURCE.encode()).hexdigest()
        account.deploy({}, {"rules/quiet.py": sha256.upper(), "other.py": "0" * 64})
        for _ in range(2):
            job = prepare(job_name="mnist-7", output_path=OUTPUT, rules=[self.rule(tmp_path)])
        uri = f"s3://{RULE_BUCKET}/rules/quiet.py"
        assert account.text(uri) == SOURCE
        (member,) = stored(job, account)["DebugRuleConfigurations"]
        assert member["RuleParameters"]["source_s3_uri"] == uri
        assert job.configuration.rules[0].source == uri

    def test_a_file_that_is_not_pinned_is_refused_with_the_command(
        self, account: Account, tmp_path: Path
    ) -> None:
        account.deploy({}, {"quiet.py": "0" * 64})
        sha256 = hashlib.sha256(SOURCE.encode()).hexdigest()
        command = f'custom_rules=\'{{"quiet.py": "{sha256}"}}\''
        with pytest.raises(ValueError, match=re.escape(command)):
            prepare(job_name="mnist-7", output_path=OUTPUT, rules=[self.rule(tmp_path)])
        assert account.keys(RULE_BUCKET) == account.keys() == []

    @pytest.mark.usefixtures("account")
    def test_without_a_deployment(self, tmp_path: Path) -> None:
        with pytest.raises(DeploymentError, match="Stepwatch-dev cannot be described in eu-west-1"):
            prepare(job_name="mnist-7", output_path=OUTPUT, rules=[self.rule(tmp_path)])

    def test_in_folders_it_stays_where_it_is(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.rule(tmp_path)
        monkeypatch.chdir(tmp_path)
        rule = Rule.custom("Quiet", source="quiet.py", rule_to_invoke="Quiet")
        (member,) = stored(in_folder(tmp_path / "out", rules=[rule]))["DebugRuleConfigurations"]
        assert member["RuleParameters"]["source_s3_uri"] == str(tmp_path / "quiet.py")

    def test_a_file_that_does_not_exist(self, tmp_path: Path) -> None:
        rule = Rule.custom("Quiet", source="nowhere.py", rule_to_invoke="Quiet")
        with pytest.raises(ValueError, match=r"'Quiet': source='nowhere.py' is not a local file"):
            in_folder(tmp_path, rules=[rule])


class TestEarlierRuns:
    def begin(self, job: PreparedJob, run: str) -> None:
        file = JobFile("mnist-7", run, "local", "2026-11-20T10:00:00Z")
        open_store(job.debug_output).put(JOB_FILE, file.encode())

    def test_a_run_that_was_there_before_is_not_the_prepared_one(self, tmp_path: Path) -> None:
        self.begin(in_folder(tmp_path), "run-1")
        again = in_folder(tmp_path)
        assert again.earlier_run == "run-1"
        assert again.job().describe()["SecondaryStatus"] == "Starting"
        self.begin(again, "run-2")
        assert again.job().describe()["SecondaryStatus"] == "Training"

    def test_a_run_that_is_resumed_is(self, tmp_path: Path) -> None:
        arguments = {"checkpoint_local_path": str(tmp_path / "checkpoints")}
        self.begin(in_folder(tmp_path, **arguments), "run-1")
        again = in_folder(tmp_path, **arguments)
        assert again.job().describe()["SecondaryStatus"] == "Training"
