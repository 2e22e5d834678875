"""A prepared job in the form in which each platform takes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.validate import validate_parameters

from rule_runtime.configuration import (
    Email,
    Rule,
    StopTraining,
    TensorBoardOutputConfig,
    rule_configs,
)
from rule_runtime.jobs import PreparedJob, prepare
from tests.rule_runtime.jobs.conftest import OUTPUT, Account
from tests.rule_runtime.processes import completed

CONFIGURATION = f"{OUTPUT}/mnist-7/stepwatch.json"
ENVIRONMENT = {"STEPWATCH_CONFIG": CONFIGURATION}


@pytest.fixture
def job(account: Account) -> PreparedJob:
    return prepare(
        job_name="mnist-7",
        output_path=OUTPUT,
        rules=[Rule.sagemaker(rule_configs.vanishing_gradient())],
        tensorboard=TensorBoardOutputConfig(),
        checkpoint_s3_uri="s3://my-bucket/checkpoints/mnist-7",
        checkpoint_local_path="/opt/ml/checkpoints",
    )


def check(service: str, operation: str, request: dict[str, Any]) -> None:
    """Check a request against the API's own model, as boto3 does before it sends one."""
    model = ServiceModel(Loader().load_service_model(service, "service-2"))
    shape = model.operation_model(operation).input_shape
    validate_parameters(request, shape)


def request_for(**members: Any) -> dict[str, Any]:
    return {
        "AlgorithmSpecification": {"TrainingImage": "any", "TrainingInputMode": "File"},
        "RoleArn": "arn:aws:iam::123456789012:role/training",
        "ResourceConfig": {
            "InstanceType": "ml.m5.large",
            "InstanceCount": 1,
            "VolumeSizeInGB": 1,
        },
        "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
        **members,
    }


class TestTrainingJobRequest:
    def test_what_belongs_to_the_job_is_put_in(self, job: PreparedJob, account: Account) -> None:
        given = request_for(
            Environment={"MINE": "1"}, OutputDataConfig={"KmsKeyId": "key"}, Tags=[]
        )
        request = job.training_job_request(given)
        check("sagemaker", "CreateTrainingJob", request)
        assert request["TrainingJobName"] == "mnist-7"
        assert request["Environment"] == {"MINE": "1", **ENVIRONMENT}
        assert request["OutputDataConfig"] == {"KmsKeyId": "key", "S3OutputPath": OUTPUT}
        assert request["CheckpointConfig"] == {
            "S3Uri": "s3://my-bucket/checkpoints/mnist-7",
            "LocalPath": "/opt/ml/checkpoints",
        }
        for member in ("DebugHookConfig", "DebugRuleConfigurations", "TensorBoardOutputConfig"):
            assert member not in request
        assert given["Environment"] == {"MINE": "1"}
        account.start_training_job(**request)
        described = account.client("sagemaker").describe_training_job(TrainingJobName="mnist-7")
        assert described["CheckpointConfig"] == request["CheckpointConfig"]

    @pytest.mark.parametrize(
        ("members", "field"),
        [
            ({"TrainingJobName": "other"}, "^TrainingJobName is 'other'"),
            ({"Environment": {"STEPWATCH_CONFIG": "x"}}, r"^Environment\.STEPWATCH_CONFIG is 'x'"),
            ({"CheckpointConfig": {"S3Uri": "s3://x/y"}}, "^CheckpointConfig is"),
            ({"DebugHookConfig": {}}, "^DebugHookConfig is in the request"),
            ({"DebugRuleConfigurations": []}, "^DebugRuleConfigurations is in the request"),
            ({"TensorBoardOutputConfig": {}}, "^TensorBoardOutputConfig is in the request"),
            ({"Environment": {f"A{i}": "" for i in range(100)}}, "^Environment has 101 members"),
        ],
    )
    def test_what_contradicts_is_refused_by_its_field(
        self, job: PreparedJob, members: dict[str, Any], field: str
    ) -> None:
        with pytest.raises(ValueError, match=field):
            job.training_job_request(request_for(**members))

    def test_what_the_job_says_itself_may_stand_there_too(self, job: PreparedJob) -> None:
        once = job.training_job_request(request_for())
        assert job.training_job_request(once) == once

    def test_a_job_in_a_folder_is_none_for_sagemaker(self, tmp_path: Path) -> None:
        local = prepare(job_name="mnist-7", output_path=tmp_path)
        for take in (
            lambda: local.training_job_request({}),
            local.estimator_arguments,
            local.model_trainer_arguments,
        ):
            with pytest.raises(ValueError, match=r"^output_path is .*writes to S3"):
                take()

    @pytest.mark.usefixtures("account")
    def test_checkpoints_without_a_place_in_s3(self) -> None:
        job = prepare(job_name="mnist-7", output_path=OUTPUT, checkpoint_local_path="/opt/ml")
        with pytest.raises(ValueError, match="checkpoint_s3_uri is missing"):
            job.training_job_request({})

    @pytest.mark.usefixtures("account")
    def test_a_value_that_the_api_would_refuse(self) -> None:
        job = prepare(job_name="mnist-7", output_path=f"{OUTPUT}/{'x' * 500}")
        with pytest.raises(ValueError, match=r"Environment\.STEPWATCH_CONFIG has \d+ characters"):
            job.training_job_request({})


@pytest.mark.usefixtures("account")
class TestAJobThatAsksToBeStopped:
    """It carries a tag, without which a deployment may not stop it."""

    @pytest.fixture
    def stopping(self) -> PreparedJob:
        return prepare(job_name="mnist-7", output_path=OUTPUT, actions=StopTraining())

    def test_by_an_action_of_a_rule_too(self) -> None:
        configuration = {"RuleConfigurationName": "NonFinite"}
        rule = Rule.sagemaker({"DebugRuleConfiguration": configuration}, actions=StopTraining())
        assert prepare(job_name="a", output_path=OUTPUT, rules=[rule]).requests_stop
        mailed = prepare(job_name="b", output_path=OUTPUT, actions=Email("me@example.com"))
        assert not mailed.requests_stop

    def test_in_a_request_to_sagemaker(self, stopping: PreparedJob, job: PreparedJob) -> None:
        team = {"Key": "team", "Value": "b"}
        request = stopping.training_job_request(request_for(Tags=[team]))
        check("sagemaker", "CreateTrainingJob", request)
        tag = {"Key": "stepwatch:debug-output", "Value": stopping.debug_output}
        assert request["Tags"] == [team, tag]
        assert stopping.training_job_request(request)["Tags"] == [team, tag]
        assert "Tags" not in job.training_job_request(request_for())

    def test_in_arguments_of_the_sdk(self, stopping: PreparedJob, job: PreparedJob) -> None:
        (of_estimator,) = stopping.estimator_arguments()["tags"]
        key = "stepwatch:debug-output"
        assert of_estimator == {"Key": key, "Value": stopping.debug_output}
        (of_trainer,) = stopping.model_trainer_arguments()["tags"]
        assert of_trainer == {"key": key, "value": f"{OUTPUT}/"}, "it changes the job's name"
        for take in (job.estimator_arguments, job.model_trainer_arguments):
            assert "tags" not in take()

    def test_in_containers(self, stopping: PreparedJob) -> None:
        batch = {"jobQueue": "queue", "jobDefinition": "training", **stopping.batch_overrides()}
        check("batch", "SubmitJob", batch)
        assert batch["tags"] == {"stepwatch:debug-output": stopping.debug_output}
        task = {"taskDefinition": "training", **stopping.ecs_overrides("trainer")}
        check("ecs", "RunTask", task)
        assert task["tags"] == [{"key": "stepwatch:debug-output", "value": stopping.debug_output}]

    def test_a_place_that_no_tag_can_hold_is_refused(self) -> None:
        odd = prepare(job_name="a", output_path=f"{OUTPUT}/a&b", actions=StopTraining())
        with pytest.raises(ValueError, match=r"a tag cannot contain 's3://my-bucket.*a&b"):
            odd.training_job_request(request_for())


class TestContainers:
    def test_batch(self, job: PreparedJob) -> None:
        request = {"jobQueue": "queue", "jobDefinition": "training", **job.batch_overrides()}
        check("batch", "SubmitJob", request)
        assert request["jobName"] == "mnist-7"
        assert request["containerOverrides"]["environment"] == [
            {"name": "STEPWATCH_CONFIG", "value": CONFIGURATION}
        ]
        assert "tags" not in request

    def test_ecs(self, job: PreparedJob) -> None:
        request = {"taskDefinition": "training", **job.ecs_overrides("trainer")}
        check("ecs", "RunTask", request)
        (container,) = request["overrides"]["containerOverrides"]
        assert container["name"] == "trainer"
        assert container["environment"] == [{"name": "STEPWATCH_CONFIG", "value": CONFIGURATION}]
        assert "tags" not in request

    def test_kubernetes(self, job: PreparedJob) -> None:
        assert job.kubernetes_env() == [{"name": "STEPWATCH_CONFIG", "value": CONFIGURATION}]

    def test_a_shell_gets_every_character(self, tmp_path: Path) -> None:
        folder = tmp_path / 'it\'s $HOME; `echo x` "two"'
        job = prepare(job_name="mnist-7", output_path=folder)
        done = completed(["sh", "-c", f'{job.shell()}printf %s "$STEPWATCH_CONFIG"'], check=True)
        assert done.stdout == job.environment["STEPWATCH_CONFIG"]
        assert Path(done.stdout).is_file()

    def test_a_prepared_job_is_frozen(self, job: PreparedJob) -> None:
        with pytest.raises(AttributeError):
            job.job_name = "other"  # type: ignore[misc]
        with pytest.raises(TypeError):
            job.environment["STEPWATCH_CONFIG"] = "other"


class TestSources:
    def source(self, folder: Path) -> Path:
        (folder / "src").mkdir()
        (folder / "src" / "train.py").write_text("import stepwatch\n")
        return folder / "src"

    def test_the_hooks_package_goes_along(self, job: PreparedJob, tmp_path: Path) -> None:
        source = self.source(tmp_path)
        (source / "requirements.txt").write_text("timm==1.0\n")
        staged = Path(job.estimator_arguments(source)["source_dir"])
        assert (staged / "train.py").read_text() == (source / "train.py").read_text()
        lines = (staged / "requirements.txt").read_text().splitlines()
        assert lines[0] == "timm==1.0"
        assert not (source / "hook_layer").exists()
        shown = completed(
            [
                *("python", "-c"),
                "import hook_layer as h, stepwatch as s; s.torch; print(h.__file__, s.__file__)",
            ],
            cwd=staged,
            check=True,
        )
        for file in shown.stdout.split():
            assert Path(file).resolve().is_relative_to(staged.resolve())

    def test_what_it_needs_is_what_the_package_says(self) -> None:
        import tomllib

        from rule_runtime.jobs.source_folder import REQUIREMENTS

        root = Path(__file__).resolve().parents[3]
        project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
        needed = [*project["dependencies"], *project["optional-dependencies"]["aws"]]
        assert sorted(REQUIREMENTS) == sorted(needed)

    def test_a_folder_that_is_none_or_has_another_hook_layer(
        self, job: PreparedJob, tmp_path: Path
    ) -> None:
        with pytest.raises(ValueError, match=r"source_dir is .*no folder"):
            job.estimator_arguments(tmp_path / "nowhere")
        source = self.source(tmp_path)
        for package in ("stepwatch", "hook_layer"):
            (source / package).mkdir()
            with pytest.raises(ValueError, match=f"{package} is there already"):
                job.model_trainer_arguments(source)
