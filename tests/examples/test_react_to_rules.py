"""The job that is stopped by a rule, run to its end, and who is told of it."""

from __future__ import annotations

import re

import pytest

from tests.examples.running import example

CONSOLE = "https://us-east-1.console.aws.amazon.com/cloudwatch/home?region=us-east-1#logsV2"


@pytest.fixture(scope="module")
def printed() -> str:
    return example("react_to_rules")


def events(printed: str) -> list[str]:
    return re.findall(r"^EventBridge: (.*)$", printed, re.MULTILINE)


def test_the_pipeline_stops_the_job(printed: str) -> None:
    stopped = re.search(r"^train.py: stopped: training was stopped: (.*)$", printed, re.MULTILINE)
    assert stopped is not None
    assert "mean(|g|)" in stopped[1]
    assert stopped[1].endswith("(rule VanishingGradient)")
    assert printed.splitlines()[-1].endswith("; the training job is Stopped")


def test_the_subscriber_is_told_of_the_rules_and_of_the_job(printed: str) -> None:
    reported = events(printed)
    for rule in ("LossNotDecreasing", "VanishingGradient"):
        found = [line for line in reported if f"{rule} IssuesFound at step " in line]
        assert found  # EventBridge delivers at least once
        assert found[0].startswith("stepwatch.debugger: ")
    assert reported[-1] == "aws.sagemaker: the job is Stopped"
    assert f"\n{len(reported)} events came" in printed


def test_the_owner_sees_the_verdicts_and_where_the_logs_are(printed: str) -> None:
    summary, _, urls = printed.partition("rule_job_summary():\n")[2].partition("rule_log_urls():\n")
    for rule in ("VanishingGradient", "LossNotDecreasing"):
        assert f"{rule}: IssuesFound\n    RuleEvaluationConditionMet: " in summary
        assert re.search(rf"^  {rule}: {re.escape(CONSOLE)}.*{rule}", urls, re.MULTILINE)
        # Each status once, as `wait_for_rules` saw it change.
        assert len(re.findall(rf"^{rule}: IssuesFound$", printed, re.MULTILINE)) == 1
