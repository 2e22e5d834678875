"""An untouched Keras script that goes wrong is stopped by the deployed pipeline."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hook_layer.format.paths import STOP_FILE
from hook_layer.storage.s3 import S3Store
from infra.local import LocalTarget
from tests.python_path import PYTHON_PATH

pytestmark = pytest.mark.other_environment

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-frameworks" / "bin" / "python"
SCRIPT = Path(__file__).resolve().parent / "scripts" / "keras_mnist.py"
RULES: dict[str, dict[str, str]] = {"VanishingGradient": {}, "LossNotDecreasing": {}}
SENTENCES = {
    "VanishingGradient": "gradients/convolution/biasGrad: mean(|g|) 0 < 1e-07",
    "LossNotDecreasing": "loss: rose by ",
}
"""What happens: the first steps throw the loss up, and no unit of the network lives on."""
NUM_EPOCHS = 20_000  # so many that it cannot end by itself on any machine
RUN_TIMEOUT_S = 300
WAIT_S = 240


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalTarget]:
    context = {"stepwatch:rules": RULES, "stepwatch:stop_rules": list(RULES)}
    with LocalTarget(context, workdir=tmp_path_factory.mktemp("local")) as local_target:
        yield local_target


def configuration(folder: Path, bucket: str) -> Path:
    file = folder / "stepwatch.json"
    document = {
        "DebugHookConfig": {
            "S3OutputPath": f"s3://{bucket}",
            "HookParameters": {"save_interval": "10", "stop_poll_s": "0.5"},
            "CollectionConfigurations": [{"CollectionName": "gradients"}],
        },
        "DebugRuleConfigurations": [{"RuleConfigurationName": name} for name in RULES],
    }
    file.write_text(json.dumps(document))
    return file


def test_a_keras_script_with_too_high_a_learning_rate_is_stopped(
    target: LocalTarget, tmp_path: Path
) -> None:
    name = "keras-mnist"
    uri = f"s3://{target.tensor_bucket}/{name}/debug-output/"
    arn = target.start_training_job(name, uri, may_be_stopped=True)
    job = {
        "STEPWATCH_CONFIG": str(configuration(tmp_path, target.tensor_bucket)),
        "TRAINING_JOB_NAME": name,
        "TRAINING_JOB_ARN": arn,
        "KERAS_BACKEND": "tensorflow",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": PYTHON_PATH,
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    done = subprocess.run(
        [str(PYTHON), "-m", "hook_layer", str(SCRIPT), "10", str(NUM_EPOCHS)],
        env={**os.environ, **target.environment(), **job},
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    target.wait_idle(WAIT_S)
    assert done.returncode == 0, done.stderr[-4000:]  # Keras ends fit, and the script continues
    assert "training ends after step " in done.stderr

    evaluated = {one["RuleConfigurationName"]: one for one in target.rule_statuses(name)}
    statuses = {rule: one["RuleEvaluationStatus"] for rule, one in evaluated.items()}
    assert statuses == dict.fromkeys(RULES, "IssuesFound")
    for rule, sentence in SENTENCES.items():
        assert f"the rule {rule} at step 10 " in evaluated[rule]["StatusDetails"]
        assert sentence in evaluated[rule]["StatusDetails"]
    stop = json.loads(S3Store(uri, client=target.client("s3")).get(STOP_FILE))
    # Both ask for it, at the same step; the one that is evaluated first is named.
    assert stop["RuleConfigurationName"] in RULES
    assert stop["Evidence"]["step"] == 10
    assert SENTENCES[stop["RuleConfigurationName"]] in stop["Reason"]
    assert stop["Reason"] in done.stderr

    # The script went on behind `fit`, and ended by itself.
    assert done.stdout.startswith("trained ")
    assert 0 < int(done.stdout.split()[1]) < NUM_EPOCHS / 2
    target.finish_training_job(name, done.returncode)
    described: Any = target.client("sagemaker").describe_training_job(TrainingJobName=name)
    assert described["TrainingJobStatus"] == "Stopped"
