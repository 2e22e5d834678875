from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from hook_layer.config import (
    DEFAULT_SAGEMAKER_OUT_DIR,
    JobEnvironment,
    hook_enabled,
    resolve_out_dir,
)
from hook_layer.hook_options import HookOptions

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


def test_out_dir() -> None:
    assert resolve_out_dir("runs/1", {}) == "runs/1"
    assert resolve_out_dir(None, {"TRAINING_JOB_NAME": "x"}) == DEFAULT_SAGEMAKER_OUT_DIR
    with pytest.raises(ValueError, match="out_dir is missing"):
        resolve_out_dir(None, {})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stop": "rais"}, "did you mean 'raise'"),
        ({"on_full": "block"}, "on_full='block'"),
        ({"stop_poll_s": 0}, "stop_poll_s=0"),
        ({"queue_bytes": "1"}, "queue_bytes='1'"),
        ({"max_wait_s": 0}, "max_wait_s=0"),
        ({"statistics": "yes"}, "statistics='yes'"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HookOptions(**options)


def test_the_core_imports_without_any_framework() -> None:
    code = (
        "import sys\n"
        "for name in ('torch', 'boto3', 'tensorflow'): sys.modules[name] = None\n"
        "import hook_layer.hook, hook_layer.writer, hook_layer.statistics\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
