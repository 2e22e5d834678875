"""Run the demo: `make demo`, or `python -m examples.demo`.

The application that `cdk deploy` deploys is synthesised, with rule parameters for short runs, and
deployed into an emulator on this machine; two real training runs then write their tensors to its
S3. The run with a learning rate of 10 must be stopped by the pipeline, the other one must be left
alone.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from examples.demo.job import Job
from examples.demo.report import RuleResult, print_table, results_of
from infra.local import LocalTarget

RULES = {
    "VanishingGradient": {},
    "ExplodingTensor": {},
    "LossNotDecreasing": {"mode": "EVAL", "num_steps": "2"},
}
STOP_RULES = ["ExplodingTensor"]
_POLL_S = 0.25
_RUN_TIMEOUT_S = 240
_VERDICT_TIMEOUT_S = 30
_FILE_WIDTH = 150
_LATEST_STOP = 0.75  # of the planned steps


def main() -> int:
    """Run both jobs and return the exit status."""
    # Where nobody looks at a terminal, lines may be as long as the details need.
    console = Console() if sys.stdout.isatty() else Console(width=_FILE_WIDTH)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="stepwatch-demo-") as folder:
        console.print(told_rules(), soft_wrap=True)
        console.print("synthesising the template and deploying it into the emulator ...")
        context = {"stepwatch:rules": RULES, "stepwatch:stop_rules": STOP_RULES}
        with LocalTarget(context, workdir=Path(folder)) as target:
            console.print(
                f"deployed: bucket {target.tensor_bucket}, endpoint {target.endpoint_url} "
                f"({time.monotonic() - started:.1f} s)"
            )
            results, mistakes, sick = run_jobs(target, console)
            stopped_by = rule_that_stopped(sick, target)
    print_table(results, console)
    for mistake in mistakes:
        console.print(f"demo: FAILED: {mistake}", markup=False)
    if mistakes:
        return 1
    console.print(
        f"demo: ok - {stopped_by} stopped the sick run at step {sick.step} of {sick.num_steps}, "
        f"the healthy run completed ({time.monotonic() - started:.0f} s)",
        markup=False,
        soft_wrap=True,
    )
    return 0


def told_rules() -> str:
    """Return which rules judge here, and why these."""
    others = ", ".join(name for name in RULES if name not in STOP_RULES)
    return (
        f"rules: {', '.join(STOP_RULES)}, whose finding stops a job that opts in, and {others}: "
        "few, as all rules share this machine; a deployment has the pack recommended, unless "
        "configured otherwise"
    )


def run_jobs(target: LocalTarget, console: Console) -> tuple[list[RuleResult], list[str], Job]:
    """Run both jobs; return the verdicts on them, what went otherwise, and the sick job."""
    healthy = Job("healthy", learning_rate=0.004, epochs=50)
    # Planned so long that it cannot end by itself on any machine.
    sick = Job("sick", learning_rate=10.0, epochs=1000)
    results: list[RuleResult] = []
    mistakes: list[str] = []
    for job, check in ((healthy, check_healthy), (sick, check_sick)):
        status = run(job, target, console)
        found = results_of(job.name, target)
        results += found
        mistakes += [f"{job.name}: {text}" for text in check(job, status, found)]
        if mistakes:
            console.print(job.output, markup=False)
    return results, mistakes, sick


def run(job: Job, target: LocalTarget, console: Console) -> str:
    """Run one job to its end and return the training job's status."""
    out_dir = f"s3://{target.tensor_bucket}/{job.name}/debug-output"
    # A deployment stops only jobs that opt in; here both do, by a tag.
    arn = target.start_training_job(job.name, out_dir, may_be_stopped=True)
    job.start(out_dir, target.environment() | {"TRAINING_JOB_ARN": arn})
    console.print(f"\n[bold]{job.name}[/bold]: learning rate {job.learning_rate}")
    deadline = time.monotonic() + _RUN_TIMEOUT_S
    try:
        with console.status("starting") as line:
            shown = ""
            while (exit_status := job.poll()) is None and time.monotonic() < deadline:
                shown = show_progress(job, target, console, shown)
                line.update(f"{job.last_line or 'starting'}")
                time.sleep(_POLL_S)
    finally:
        job.kill()
    target.finish_training_job(job.name, 1 if exit_status is None else exit_status)
    target.wait_idle(_VERDICT_TIMEOUT_S)
    console.print(f"  {job.end or job.last_line}", markup=False, soft_wrap=True)
    described: Any = target.client("sagemaker").describe_training_job(TrainingJobName=job.name)
    status: str = described["TrainingJobStatus"]
    console.print(f"  training job: {status}")
    return status


def show_progress(job: Job, target: LocalTarget, console: Console, shown: str) -> str:
    """Print a line when a rule changed its status or another tenth of the steps is done."""
    statuses = target.rule_statuses(job.name)
    summary = ", ".join(
        f"{one['RuleConfigurationName']} {one['RuleEvaluationStatus']}" for one in statuses
    )
    tenth = job.step * 10 // job.num_steps if job.num_steps else 0
    text = f"{tenth} {summary}"
    if text != shown and job.num_steps:
        console.print(f"  step {job.step:>5}/{job.num_steps}  {summary}", highlight=False)
    return text


def rule_that_stopped(job: Job, target: LocalTarget) -> str:
    """Return the rule that the stop signal beside the job's tensors names, or ""."""
    keys = target.object_arrivals(f"{job.name}/debug-output/")
    key = next((key for key in keys if key.endswith("/stop.json")), None)
    if key is None:
        return ""
    stored = target.client("s3").get_object(Bucket=target.tensor_bucket, Key=key)
    return str(json.load(stored["Body"]).get("RuleConfigurationName"))


def check_healthy(job: Job, status: str, results: list[RuleResult]) -> list[str]:
    """Return what went otherwise than a healthy run must."""
    mistakes = []
    if status != "Completed":
        mistakes.append(f"the training job ended {status}, not Completed")
    if job.step != job.num_steps or not job.num_steps or job.was_stopped:
        mistakes.append(f"the script ended early: {job.last_line!r}")
    mistakes += [
        f"{result.rule} is {result.status}, not NoIssuesFound: {result.detail}"
        for result in results
        if result.status != "NoIssuesFound"
    ]
    return mistakes or missing_rules(results)


def check_sick(job: Job, status: str, results: list[RuleResult]) -> list[str]:
    """Return what went otherwise than a sick run must."""
    mistakes = []
    if status != "Stopped":
        mistakes.append(f"the training job ended {status}, not Stopped")
    if not job.was_stopped:
        mistakes.append(f"the script was not ended by the stop signal: {job.last_line!r}")
    elif job.step > job.num_steps * _LATEST_STOP:
        mistakes.append(f"stopped only at step {job.step} of {job.num_steps}")
    if not any(r.status == "IssuesFound" and r.rule in STOP_RULES for r in results):
        mistakes.append("no rule that stops jobs found an issue")
    return mistakes or missing_rules(results)


def missing_rules(results: list[RuleResult]) -> list[str]:
    """Return the configured rules that gave no status at all."""
    return [
        f"{rule} gave no status"
        for rule in RULES
        if rule not in {result.rule for result in results}
    ]


if __name__ == "__main__":
    sys.exit(main())
