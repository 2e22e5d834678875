"""Count the files that one S3 event with a finding goes through in a warm evaluator.

`python -m tools.event_trace` calls the deployed function with AWS in moto, in a mode of
`stepwatch:evaluators`. It prints the number of files, and of stays: how often control moves to
another file. Its exit status is 1 above the limits. `-v` prints the calls, too.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from functools import partial
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, Final

import boto3
import numpy as np
from moto import mock_aws

from hook_layer.format.job_file import JobFile
from hook_layer.storage.s3 import S3Store
from lambdas.contracts import environment
from lambdas.contracts.events import JOB_RULES
from rule_runtime.testing.trial_builder import TrialBuilder

__all__ = ["LIMITS", "main", "trace_calls"]

LIMITS: Final = {"per_rule": (46, 203), "grouped": (58, 527)}
"""Most files and stays by mode: 5 % above what was measured. Lower them where you can."""
_ROOT: Final = str(Path(__file__).parents[1]) + "/"
_PACKAGES: Final = tuple(f"{_ROOT}{name}/" for name in ("hook_layer", "lambdas", "rule_runtime"))
_BUCKET: Final = "tensors"
_TABLE: Final = "states"
_RULE: Final = "ExplodingTensor"
_RULES: Final = (_RULE, "NonFinite", "VanishingGradient")
_VARIABLES: Final = {
    "AWS_ACCESS_KEY_ID": "none",
    "AWS_SECRET_ACCESS_KEY": "none",
    "AWS_DEFAULT_REGION": "us-east-1",
    environment.TENSOR_BUCKET_NAMES: _BUCKET,
    environment.STATE_TABLE_NAME: _TABLE,
}
_OF_MODE: Final = {
    "per_rule": {
        environment.RULE_CONFIGURATION_NAME: _RULE,
        environment.RULE_PARAMETERS: json.dumps({"rule_to_invoke": _RULE}),
    },
    "grouped": {
        environment.RULE_CONFIGURATION_NAME: JOB_RULES,
        environment.GROUPED_RULES: json.dumps({rule: {"rule_to_invoke": rule} for rule in _RULES}),
    },
}


@mock_aws
def trace_calls(mode: str) -> list[tuple[str, str]]:
    """Return file and function of each call that an event with a finding leads to, in order.

    One process can show one mode, because the function reads its environment once.
    """
    os.environ |= _VARIABLES | _OF_MODE[mode]
    boto3.client("s3").create_bucket(Bucket=_BUCKET)
    boto3.client("dynamodb").create_table(
        TableName=_TABLE,
        KeySchema=[
            {"AttributeName": "run", "KeyType": "HASH"},
            {"AttributeName": "rule", "KeyType": "RANGE"},
        ],
        AttributeDefinitions=[{"AttributeName": n, "AttributeType": "S"} for n in ("run", "rule")],
        BillingMode="PAY_PER_REQUEST",
    )
    trial = TrialBuilder(S3Store(f"s3://{_BUCKET}/mnist-7"))
    trial.store.put("job.json", JobFile("mnist-7", "run-1", "sagemaker", "").encode())
    from lambdas.evaluate_rule.handler import lambda_handler  # noqa: PLC0415 - after the environment

    # Lambda's own method is no function of the project.
    context = SimpleNamespace(get_remaining_time_in_millis=partial(int, 60_000))
    lambda_handler(_event(trial.step(0, {"weight": [1.0, 2.0]})), context)
    event = _event(trial.step(1, {"weight": [1.0, np.nan]}))
    calls: list[tuple[str, str]] = []

    def profile(frame: FrameType, kind: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if kind == "call" and name.startswith(_PACKAGES):
            calls.append((name.removeprefix(_ROOT), frame.f_code.co_name))

    sys.setprofile(profile)
    lambda_handler(event, context)
    sys.setprofile(None)
    return calls


def _event(key: str) -> dict[str, Any]:
    detail = {"bucket": {"name": _BUCKET}, "object": {"key": f"mnist-7/{key}", "size": 1000}}
    body = {"detail-type": "Object Created", "time": "2026-11-20T10:00:00Z", "detail": detail}
    return {"Records": [{"messageId": key, "body": json.dumps(body), "eventSource": "aws:sqs"}]}


def main(arguments: list[str] | None = None) -> int:
    """Print the figures of a mode; return 1 if they are above the limits."""
    parser = argparse.ArgumentParser("python -m tools.event_trace")
    parser.add_argument("mode", nargs="?", choices=tuple(LIMITS), default="per_rule")
    parser.add_argument("-v", action="store_true", help="print the calls")
    options = parser.parse_args(arguments)
    calls = trace_calls(options.mode)
    files = [file for file, _ in calls]
    stays = sum(file != before for file, before in zip(files, ["", *files], strict=False))
    if options.v:
        print(*(f"{file}:{function}" for file, function in calls), sep="\n")
    num_files, (most_files, most_stays) = len(set(files)), LIMITS[options.mode]
    print(f"{num_files} files (at most {most_files}), {stays} stays (at most {most_stays})")
    return int(num_files > most_files or stays > most_stays)


if __name__ == "__main__":
    sys.exit(main())
