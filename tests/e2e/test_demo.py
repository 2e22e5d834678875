"""The demo, as `make demo` runs it, and that it fails when a run ends otherwise than it must."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import cast

from rich.console import Console

from examples.demo.__main__ import (
    check_healthy,
    check_sick,
    explanation,
    introduction,
    show_progress,
)
from examples.demo.job import Job
from examples.demo.report import RuleResult, print_table
from examples.demo.timeline import Timeline
from examples.demo.train import make_hook
from infra.local import LocalTarget
from rule_runtime.reporting.job_verdicts import JobVerdict

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
    assert " s  creating the stack" in done.stdout
    assert "What was wrong with the sick run: its learning rate is 10" in done.stdout
    for rule in RULES:
        assert done.stdout.count(rule) >= 3


def test_the_introduction_names_the_fault_and_the_rules() -> None:
    said = introduction()
    assert "sick: learning rate 10, which is far too high" in said
    assert "ExplodingTensor (its finding stops a job that opts in), " in said
    assert all(said.count(rule) == 1 for rule in RULES)
    assert "A deployment has the pack recommended" in said


NAN = "loss: 1 of 1 elements are NaN (worker_0, TRAIN)"
DETAILS = {
    "IssuesFound": f"RuleEvaluationConditionMet: resulted in the condition being met\n{NAN}",
    "Error": "InsufficientInformationForRuleInvocation: Insufficient information to invoke rule R: "
    "needs 2 validation passes, had 1",
}


def results(job: str, **statuses: str) -> list[RuleResult]:
    return [
        RuleResult(
            job,
            JobVerdict.from_json(
                {
                    "RuleConfigurationName": rule,
                    "RuleEvaluationStatus": status,
                    "StatusDetails": DETAILS.get(status, ""),
                }
            ),
            step="10" if status == "IssuesFound" else "",
        )
        for rule, status in statuses.items()
    ]


def printed(results: list[RuleResult]) -> str:
    console = Console(width=150)
    with console.capture() as capture:
        print_table(results, console)
    return capture.get()


def test_what_was_wrong_stands_beside_what_was_found() -> None:
    said = explanation([*results("healthy", **GOOD), *results("sick", **BAD)])
    assert "its learning rate is 10, 2,500 times that of the healthy run" in said
    assert f"\n  ExplodingTensor at step 10: {NAN}\n" in said
    assert "VanishingGradient" not in said


def test_a_rule_without_data_reads_as_in_other_displays() -> None:
    (result,) = results("sick", LossNotDecreasing="Error")
    shown = printed([result])
    assert result.verdict.displayed_status.startswith("not evaluated")
    assert result.verdict.displayed_status in shown
    assert "needs 2 validation passes, had 1" in shown
    assert "Error" not in shown


def test_each_run_has_a_table() -> None:
    shown = printed([*results("healthy", **GOOD), *results("sick", **BAD)])
    assert shown.index("verdicts on the healthy run") < shown.index("verdicts on the sick run")
    assert NAN in shown[shown.index("verdicts on the sick run") :]


class Statuses:
    """What a target says of the rules of a job; findings request a stop after a while."""

    def __init__(self, step: int, **statuses: str) -> None:
        self.step, self.statuses = step, statuses

    def object_arrivals(self, prefix: str) -> list[str]:
        return [f"{prefix}job.json"] + [f"{prefix}stop.json"] * (self.step > 50)

    def rule_statuses(self, _: str) -> list[dict[str, str]]:
        return [
            {"RuleConfigurationName": rule, "RuleEvaluationStatus": status}
            for rule, status in self.statuses.items()
        ]


def test_progress_is_a_line_for_each_finding_and_fifth_of_the_steps() -> None:
    console = Console(width=150)
    job, shown = Job("sick", 10.0, 1), ""
    with console.capture() as capture:
        for step, statuses in ((0, {}), (20, GOOD), (40, GOOD), (45, BAD), (46, BAD), (60, BAD)):
            job.step, job.num_steps, job.loss = step, 100 if step else 0, f"{step / 100}"
            target = cast("LocalTarget", Statuses(step, **statuses))
            shown = show_progress(job, target, Timeline(console), shown)
    assert [line[8:] for line in capture.get().splitlines()] == [
        "step 20 of 100, loss 0.2: no finding",
        "step 40 of 100, loss 0.4: no finding",
        "step 45 of 100, loss 0.45: found by ExplodingTensor",
        "step 60 of 100, loss 0.6: found by ExplodingTensor; a stop is requested",
    ]


def test_the_script_polls_for_a_stop_as_often_as_under_stepwatch_run(tmp_path: Path) -> None:
    hook = make_hook(str(tmp_path))
    assert hook.session.options.stop_poll_s == 0.5
    hook.close()


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
