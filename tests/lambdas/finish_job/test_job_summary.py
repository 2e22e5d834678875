"""The summary of a job: the cause of its findings, and of how many rules they are."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lambdas.shared import clients
from lambdas.shared.event_bus import AnnouncementError
from tests.lambdas.conftest import ARN, ROOT, RUN, Pipeline
from tests.lambdas.finish_job.test_handler import NOTHING, RULE, state_change
from tests.lambdas.finish_job.test_job_reports import event_of

HEADLINE = "A number is not finite: seen at step 2 in gradient/conv.weight"


@pytest.fixture
def found(pipeline: Pipeline) -> Pipeline:
    """A run that found an issue and goes on."""
    pipeline.put_job()
    for step in range(4):
        pipeline.put_step(step, num_nan=int(step == 2))
    pipeline.deliver()
    return pipeline


def add_state(pipeline: Pipeline, rule: str, **changes: Any) -> None:
    """Put the state of another rule over the same run into the table; None removes a member."""
    item = {**pipeline.state_item(), "rule": {"S": rule}, **changes}
    item = {name: value for name, value in item.items() if value is not None}
    pipeline.aws("dynamodb").put_item(TableName="states", Item=item)


def test_it_is_published_when_all_rules_have_a_verdict(found: Pipeline) -> None:
    for detail in found.announced():
        found.finish(event_of(detail))
    assert found.summaries()[-1] == {
        "SchemaVersion": 1,
        "TrainingJobName": "mnist-7",
        "TrainingJobArn": ARN,
        "RunId": RUN,
        "DebugOutputUri": f"s3://tensors/{ROOT}",
        "Summary": f"{HEADLINE}, by 1 of 1 rule so far",
        "Diagnosis": {
            "Cause": "not_finite",
            "Headline": HEADLINE,
            "Step": 2,
            "Tensor": "gradient/conv.weight",
            "Worker": "worker_0",
            "Line": "",
            "Change": json.loads(found.state_item()["evidence"]["S"])["remedy"],
            "Explains": [RULE],
            "OtherCauses": [],
            "OtherFindings": [],
        },
        "DebugRuleEvaluationStatuses": [
            {"RuleConfigurationName": RULE, "RuleEvaluationStatus": "IssuesFound"}
        ],
    }


def test_not_before_all_rules_have_one(found: Pipeline) -> None:
    add_state(found, "Other", status={"S": "InProgress"})
    assert found.finish(event_of(found.announced()[-1])) == NOTHING
    assert found.summaries() == []


def test_the_end_of_the_job_says_what_is_known_and_how_much_is_missing(found: Pipeline) -> None:
    add_state(found, "Other", status={"S": "InProgress"}, evidence=None)
    found.finish(state_change("Failed"))
    (summary,) = found.summaries()
    assert summary["Summary"].endswith(", by 1 of 2 rules so far")
    assert [one["RuleEvaluationStatus"] for one in summary["DebugRuleEvaluationStatuses"]] == [
        "IssuesFound",
        "InProgress",
    ]


def test_a_later_summary_replaces_it(found: Pipeline) -> None:
    found.finish(state_change())
    found.put_marker()
    found.deliver()
    found.finish(state_change())
    assert [one["Summary"] for one in found.summaries()] == [
        f"{HEADLINE}, by 1 of 1 rule so far",
        f"{HEADLINE}, by 1 of 1 rule",
    ]


def test_a_job_without_findings_has_no_diagnosis(pipeline: Pipeline) -> None:
    pipeline.put_job()
    pipeline.put_step(0)
    pipeline.put_marker()
    pipeline.deliver()
    pipeline.finish(state_change())
    (summary,) = pipeline.summaries()
    assert summary["Summary"] == "0 of 1 rule found an issue"
    assert "Diagnosis" not in summary


@pytest.mark.parametrize(
    ("rule", "cause"),
    [("ExplodingTensor", "not_finite"), ("MyRule", None)],
    ids=["of a version without the rule's class", "of a custom rule"],
)
def test_old_evidence_is_enough(found: Pipeline, rule: str, cause: str | None) -> None:
    key = {"run": found.state_item()["run"], "rule": {"S": RULE}}
    evidence = json.loads(found.state_item()["evidence"]["S"])
    old = {name: evidence[name] for name in evidence if name not in ("rule", "is_fatal")}
    add_state(found, rule, evidence={"S": json.dumps(old)})
    if rule != RULE:
        found.aws("dynamodb").delete_item(TableName="states", Key=key)
    found.finish(state_change())
    (summary,) = found.summaries()
    assert summary.get("Diagnosis", {}).get("Cause") == cause
    assert ("1 of 1 rule found an issue so far" in summary["Summary"]) == (cause is None)


def test_a_bus_that_refuses_is_an_error_so_that_the_event_comes_again(
    found: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = {"FailedEntryCount": 1, "Entries": [{"ErrorCode": "ThrottlingException"}]}
    monkeypatch.setattr(clients.eventbridge(), "put_events", lambda **_: refused)
    with pytest.raises(AnnouncementError, match="refused the summary of mnist-7"):
        found.finish(state_change())
