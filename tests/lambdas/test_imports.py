"""What a cold start must not pay for."""

from __future__ import annotations

import subprocess
import sys

import pytest

EVALUATOR = "lambdas.evaluate_rule.handler"


@pytest.mark.parametrize("module", [EVALUATOR, "lambdas.stop_job.handler"])
def test_a_function_imports_what_it_needs_only(module: str) -> None:
    unwanted = ["pydantic", "aws_xray_sdk", "torch", "pandas", "matplotlib", "infra", "moto"]
    script = f"import {module}, sys; print(*(m for m in {unwanted} if m in sys.modules))"
    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert answer.stdout.split() == []


def test_an_evaluator_makes_no_client_of_sagemaker() -> None:
    script = (
        f"import {EVALUATOR} as handler, lambdas.shared.clients as clients\n"
        "handler._service()\n"
        "print(clients.sagemaker.cache_info().currsize, clients.dynamodb.cache_info().currsize)"
    )
    environment = {
        "STEPWATCH_RULE_CONFIGURATION_NAME": "ExplodingTensor",
        "STEPWATCH_RULE_PARAMETERS": '{"rule_to_invoke": "ExplodingTensor"}',
        "STEPWATCH_STATE_TABLE_NAME": "states",
        "STEPWATCH_TENSOR_BUCKET_NAMES": "tensors",
        "AWS_DEFAULT_REGION": "eu-west-1",
    }
    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment
    )
    assert answer.stdout.split() == ["0", "1"]
