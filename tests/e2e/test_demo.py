"""The demo, as `make demo` runs it, and that it fails when a run ends otherwise than it must."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from examples.demo.__main__ import check_healthy, check_sick, told_rules
from examples.demo.job import Job
from examples.demo.report import RuleResult

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
RULES = ("VanishingGradient", "ExplodingTensor", "LossNotDecreasing")


def test_the_demo_ends_well() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert done.stdout.splitlines()[-1].startswith("demo: ok")
    for rule in RULES:
        assert done.stdout.count(rule) >= 3


def test_it_is_said_which_rules_judge_and_that_a_deployment_has_others() -> None:
    told = told_rules()
    assert told.startswith("rules: ExplodingTensor, whose finding stops a job that opts in, and ")
    assert all(told.count(rule) == 1 for rule in RULES)
    assert "a deployment has the pack recommended" in told


def results(job: str, **statuses: str) -> list[RuleResult]:
    return [RuleResult(job, rule, status, "", "", None) for rule, status in statuses.items()]


def job_that(end: str, step: int, num_steps: int = 100) -> Job:
    return Job("job", 0.1, 1, step=step, num_steps=num_steps, end=end)


GOOD = dict.fromkeys(RULES, "NoIssuesFound")
BAD = {**GOOD, "ExplodingTensor": "IssuesFound"}


def test_a_healthy_run_must_be_left_alone() -> None:
    finished = job_that("finished at step 100/100", 100)
    assert check_healthy(finished, "Completed", results("healthy", **GOOD)) == []
    assert check_healthy(finished, "Stopped", results("healthy", **GOOD))
    assert check_healthy(finished, "Completed", results("healthy", **BAD))
    assert check_healthy(
        finished, "Completed", results("healthy", VanishingGradient="NoIssuesFound")
    )
    stopped = job_that("stopped at step 40/100", 40)
    assert check_healthy(stopped, "Completed", results("healthy", **GOOD))


def test_a_sick_run_must_be_stopped_by_the_signal() -> None:
    stopped = job_that("stopped at step 40/100: training was stopped", 40)
    assert check_sick(stopped, "Stopped", results("sick", **BAD)) == []
    assert check_sick(stopped, "Completed", results("sick", **BAD))
    assert check_sick(stopped, "Stopped", results("sick", **GOOD))
    assert check_sick(job_that("stopped at step 90/100", 90), "Stopped", results("sick", **BAD))
    assert check_sick(job_that("finished at step 100", 100), "Stopped", results("sick", **BAD))
