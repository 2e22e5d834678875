"""What a cold start must not pay for."""

from __future__ import annotations

import subprocess
import sys

import pytest

EVALUATOR = "lambdas.evaluate_rule.handler"


@pytest.mark.parametrize(
    "module",
    [
        EVALUATOR,
        "lambdas.finish_job.handler",
        "lambdas.notify.handler",
        "lambdas.stop_job.handler",
        "lambdas.sweep.handler",
    ],
)
def test_a_function_imports_what_it_needs_only(module: str) -> None:
    unwanted = ["pydantic", "aws_xray_sdk", "torch", "pandas", "matplotlib", "infra", "moto"]
    script = f"import {module}, sys; print(*(m for m in {unwanted} if m in sys.modules))"
    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert answer.stdout.split() == []


def test_an_evaluator_makes_no_client_that_most_calls_do_not_need() -> None:
    script = (
        f"import {EVALUATOR} as handler, lambdas.shared.clients as clients\n"
        "handler._service()\n"
        "made = (clients.sagemaker, clients.sqs, clients.dynamodb)\n"
        "print(*(client.cache_info().currsize for client in made))"
    )
    environment = {
        "STEPWATCH_RULE_CONFIGURATION_NAME": "ExplodingTensor",
        "STEPWATCH_RULE_PARAMETERS": '{"rule_to_invoke": "ExplodingTensor"}',
        "STEPWATCH_STATE_TABLE_NAME": "states",
        "STEPWATCH_TENSOR_BUCKET_NAMES": "tensors",
        "STEPWATCH_QUEUE_URL": "https://sqs.eu-west-1.amazonaws.com/123456789012/evaluator",
        "AWS_DEFAULT_REGION": "eu-west-1",
    }
    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment
    )
    assert answer.stdout.split() == ["0", "0", "1"]
