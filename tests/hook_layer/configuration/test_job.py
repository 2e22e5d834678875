from __future__ import annotations

import subprocess
import sys

import pytest

from hook_layer.configuration.job import JobConfiguration, JobEnvironment, hook_enabled

ARN = "arn:aws:sagemaker:eu-west-1:123456789012:training-job/mnist-7"


@pytest.mark.parametrize(
    ("value", "enabled"), [("0", False), ("False", False), ("off", False), ("1", True), ("", True)]
)
def test_the_kill_switch(value: str, enabled: bool) -> None:
    assert hook_enabled({"USE_SMDEBUG": value}) is enabled
    assert hook_enabled({})


def test_the_job_is_named_by_the_platform_else_by_the_folder() -> None:
    local = JobEnvironment.detect("s3://bucket/mnist-7/debug-output/", {})
    assert (local.training_job_name, local.training_job_arn) == ("mnist-7", None)
    assert local.platform == "local"
    environ = {"TRAINING_JOB_NAME": "job-1", "TRAINING_JOB_ARN": ARN}
    platform = JobEnvironment.detect("s3://bucket/mnist-7/", environ)
    assert platform == JobEnvironment("job-1", ARN)
    assert platform.platform == "sagemaker"


def test_the_job_is_described_by_the_configuration() -> None:
    said = JobConfiguration(
        training_job_name="mine",
        debug_rule_configurations=({"RuleConfigurationName": "LossNotDecreasing"},),
        actions=({"name": "stoptraining"},),
        opt_out_of_stop=True,
    )
    job = JobEnvironment.detect("s3://bucket/folder/", {}, said)
    assert job.training_job_name == "mine"
    assert job.debug_rule_configurations == said.debug_rule_configurations
    assert (job.actions, job.opt_out_of_stop) == (said.actions, True)
    environ = {"TRAINING_JOB_NAME": "job-1"}
    assert JobEnvironment.detect("s3://b/", environ, said).training_job_name == "job-1"


def test_the_core_imports_without_any_framework() -> None:
    code = (
        "import sys\n"
        "for name in ('torch', 'boto3', 'tensorflow', 'xgboost'): sys.modules[name] = None\n"
        "import hook_layer.configuration.hook_setup, hook_layer.current_hook\n"
        "import hook_layer.capture.statistics\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_package_itself_imports_nothing() -> None:
    code = "import sys, hook_layer\nassert 'numpy' not in sys.modules\nhook_layer.SaveConfig"
    subprocess.run([sys.executable, "-c", code], check=True)
