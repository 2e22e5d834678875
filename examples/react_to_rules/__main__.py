"""Run a training with a fault; the deployed pipeline stops it and notifies subscribers.

python -m examples.react_to_rules

The application that `cdk deploy` deploys runs in an emulator on this machine meanwhile.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from examples.react_to_rules.container import Container
from examples.react_to_rules.job import create_training_job, prepare_job
from examples.react_to_rules.output import print_line
from examples.react_to_rules.subscriber import Subscriber
from infra.local import LocalTarget
from stepwatch import DebugJob

CONTEXT = {
    "stepwatch:rules": ["VanishingGradient", "LossNotDecreasing"],
    "stepwatch:stop_rules": "VanishingGradient",
}
"""What stands behind `cdk deploy -c`: the rules, and which of them may stop a job."""

TIMEOUT_S = 180.0


def main() -> int:
    """Deploy, let the job be stopped, and print it; return 0 if it was stopped."""
    print("deploying on this machine ...", flush=True)
    with deployed() as target:
        prepared = prepare_job(f"s3://{target.tensor_bucket}/output")
        print(f"{prepared.job_name} writes to {prepared.debug_output}", flush=True)
        with Subscriber(prepared.job_name) as subscriber:
            arn = create_training_job(prepared)
            with Container(prepared, arn, target) as training:
                job = DebugJob(prepared.job_name)
                job.wait_for_rules(poll_s=0.5, timeout_s=TIMEOUT_S, out=print_line)
                status = training.wait(TIMEOUT_S)
            target.wait_idle(TIMEOUT_S)
        print_summary(job.rule_job_summary())
        print_urls(job.rule_log_urls())
        print(f"{len(subscriber.events)} events came; the training job is {status}")
    return 0 if status == "Stopped" else 1


@contextmanager
def deployed() -> Iterator[LocalTarget]:
    """Deploy into the emulator; this process's AWS clients reach it by its environment.

    In an account of your own the stack is there already, and nothing of this is needed.
    """
    with (
        tempfile.TemporaryDirectory(prefix="stepwatch-react-") as folder,
        LocalTarget(CONTEXT, workdir=Path(folder)) as target,
    ):
        os.environ.update(target.environment())
        yield target


def print_summary(summary: Iterable[Mapping[str, Any]]) -> None:
    """Print what `rule_job_summary` says."""
    print("rule_job_summary():")
    for rule in summary:
        print(f"  {rule['RuleConfigurationName']}: {rule['RuleEvaluationStatus']}")
        for text in rule["StatusDetails"].splitlines():
            print(f"    {text}")


def print_urls(urls: Mapping[str, str]) -> None:
    """Print where the console shows what each rule's evaluator logged about this job."""
    print("rule_log_urls():")
    for rule, url in urls.items():
        print(f"  {rule}: {url}")


if __name__ == "__main__":
    sys.exit(main())
