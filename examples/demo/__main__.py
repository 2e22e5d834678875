"""Run the demo: `make demo`, or `python -m examples.demo`.

The application of `cdk deploy` runs in an emulator on this machine, with three rules. Two real
training runs of the same script write their tensors to its S3. The sick one has a learning rate of
10 and must be stopped. The healthy one must complete.
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
from examples.demo.timeline import Timeline
from infra.local import LocalTarget
from rule_runtime.engine.outcome import RuleStatus

RULES = {
    "VanishingGradient": {},
    "ExplodingTensor": {},
    "LossNotDecreasing": {"mode": "EVAL", "num_steps": "2"},
}
STOP_RULES = ["ExplodingTensor"]
HEALTHY_RATE = 0.004
SICK_RATE = 10.0
HEALTHY = f"healthy: learning rate {HEALTHY_RATE:g}"
SICK = f"sick: learning rate {SICK_RATE:g}, which is far too high"
_POLL_S = 0.25
_RUN_TIMEOUT_S = 240
_VERDICT_TIMEOUT_S = 30
_FILE_WIDTH = 150
_LATEST_STOP = 0.75  # of the planned steps


def main() -> int:
    """Run both jobs and return the exit status."""
    # Where nobody looks at a terminal, lines may be as long as the details need.
    console = Console() if sys.stdout.isatty() else Console(width=_FILE_WIDTH)
    timeline = Timeline(console)
    console.print(introduction(), markup=False, highlight=False)
    with tempfile.TemporaryDirectory(prefix="stepwatch-demo-") as folder:
        context = {"stepwatch:rules": RULES, "stepwatch:stop_rules": STOP_RULES}
        with LocalTarget(context, workdir=Path(folder), on_progress=timeline.line) as target:
            timeline.line("deployed")
            results, mistakes, sick = run_jobs(target, console, timeline)
            stopped_by = rule_that_stopped(sick, target)
    print_table(results, console)
    console.print(
        "verdict after: time from the arrival of the file that decided it to the verdict",
        highlight=False,
    )
    for mistake in mistakes:
        console.print(f"demo: FAILED: {mistake}", markup=False)
    if mistakes:
        return 1
    console.print(f"\n{explanation(results)}\n", markup=False, highlight=False, soft_wrap=True)
    console.print(
        f"demo: ok - {stopped_by} stopped the sick run at step {sick.step} of {sick.num_steps}, "
        f"the healthy run completed ({timeline.seconds:.0f} s)",
        markup=False,
        soft_wrap=True,
    )
    return 0


def introduction() -> str:
    """Return what the demo does, and which rules it has."""
    others = ", ".join(name for name in RULES if name not in STOP_RULES)
    return (
        "This demo deploys Stepwatch into an emulator of AWS on this machine. Then a training "
        "script runs twice:\n"
        f"* {HEALTHY}\n"
        f"* {SICK}\n"
        f"Rules: {', '.join(STOP_RULES)} (its finding stops a job that opts in), {others}.\n"
        "They are few, because they share this machine. A deployment has the pack recommended by "
        "default.\n"
    )


def explanation(results: list[RuleResult]) -> str:
    """Return what was wrong with the sick run beside what the rules found."""
    found = [each for each in results if each.job == "sick" and each.step]
    lines = [f"  {one.verdict.name} at step {one.step}: {one.verdict.details}" for one in found]
    times = SICK_RATE / HEALTHY_RATE
    return (
        f"What was wrong with the sick run: its learning rate is {SICK_RATE:g}, {times:,.0f} times "
        "that of the healthy run.\n"
        "Each update overshoots: weights and loss grow until they are NaN.\n"
        "What the rules found in it:\n" + "\n".join(lines) + "\n"
        "What to try: lower the learning rate."
    )


def run_jobs(
    target: LocalTarget, console: Console, timeline: Timeline | None = None
) -> tuple[list[RuleResult], list[str], Job]:
    """Run both jobs; return the verdicts on them, what went otherwise, and the sick job."""
    timeline = timeline or Timeline(console)
    healthy = Job("healthy", learning_rate=HEALTHY_RATE, epochs=20)
    # Planned so long that it cannot end by itself on any machine.
    sick = Job("sick", learning_rate=SICK_RATE, epochs=1000)
    results: list[RuleResult] = []
    mistakes: list[str] = []
    for job, heading, check in ((healthy, HEALTHY, check_healthy), (sick, SICK, check_sick)):
        timeline.heading(heading)
        status = run(job, target, timeline)
        found = results_of(job.name, target)
        results += found
        mistakes += [f"{job.name}: {text}" for text in check(job, status, found)]
        if mistakes:
            console.print(job.output, markup=False)
    return results, mistakes, sick


def run(job: Job, target: LocalTarget, timeline: Timeline) -> str:
    """Run one job to its end and return the training job's status."""
    out_dir = f"s3://{target.tensor_bucket}/{job.name}/debug-output"
    # A deployment stops only jobs that opt in; here both do, by a tag.
    arn = target.start_training_job(job.name, out_dir, may_be_stopped=True)
    job.start(out_dir, target.environment() | {"TRAINING_JOB_ARN": arn})
    timeline.line("starting the training script, which imports PyTorch")
    deadline = time.monotonic() + _RUN_TIMEOUT_S
    try:
        shown = ""
        while (exit_status := job.poll()) is None and time.monotonic() < deadline:
            shown = show_progress(job, target, timeline, shown)
            time.sleep(_POLL_S)
    finally:
        job.kill()
    timeline.line(job.end or job.last_line)
    target.finish_training_job(job.name, 1 if exit_status is None else exit_status)
    target.wait_idle(_VERDICT_TIMEOUT_S)
    described: Any = target.client("sagemaker").describe_training_job(TrainingJobName=job.name)
    status: str = described["TrainingJobStatus"]
    timeline.line(f"the training job is {status}")
    return status


def show_progress(job: Job, target: LocalTarget, timeline: Timeline, shown: str) -> str:
    """Print a line when a rule found something or another fifth of the steps is done."""
    found = [
        one["RuleConfigurationName"]
        for one in target.rule_statuses(job.name)
        if one["RuleEvaluationStatus"] == "IssuesFound"
    ]
    said = f"found by {', '.join(sorted(found))}" if found else "no finding"
    said += "; a stop is requested" if found and stop_request(job, target) else ""
    fifth = job.step * 5 // job.num_steps if job.num_steps else 0
    text = f"{fifth} {said}" if job.num_steps else ""
    if text != shown:
        timeline.line(f"step {job.step} of {job.num_steps}, loss {job.loss}: {said}")
    return text


def stop_request(job: Job, target: LocalTarget) -> str | None:
    """Return the key of the stop request beside the job's tensors; None without one."""
    keys = target.object_arrivals(f"{job.name}/debug-output/")
    return next((key for key in keys if key.endswith("/stop.json")), None)


def rule_that_stopped(job: Job, target: LocalTarget) -> str:
    """Return the rule that the stop request names, or ""."""
    key = stop_request(job, target)
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
        f"{verdict.name} is {verdict.status.value}, not NoIssuesFound: {verdict.details}"
        for verdict in (result.verdict for result in results)
        if verdict.status is not RuleStatus.NO_ISSUES_FOUND
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
    found = {r.verdict.name for r in results if r.verdict.status is RuleStatus.ISSUES_FOUND}
    if found.isdisjoint(STOP_RULES):
        mistakes.append("no rule that stops jobs found an issue")
    return mistakes or missing_rules(results)


def missing_rules(results: list[RuleResult]) -> list[str]:
    """Return the configured rules that gave no status at all."""
    return [
        f"{rule} gave no status"
        for rule in RULES
        if rule not in {result.verdict.name for result in results}
    ]


if __name__ == "__main__":
    sys.exit(main())
