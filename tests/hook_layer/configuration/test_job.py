from __future__ import annotations

import subprocess
import sys

import pytest

from hook_layer.configuration.job import JobEnvironment, hook_enabled

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
