"""The report of a job, which lies beside its rules' results once all of them have judged."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambdas.contracts.events import STATUS_DETAIL_TYPE, STATUS_SOURCE
from lambdas.finish_job.events import parse_status_change
from lambdas.shared import clients
from tests.lambdas.conftest import Pipeline, refusal
from tests.lambdas.finish_job.test_handler import NOTHING, RULE, state_change

WRITTEN = "The report is written"
KEY = "mnist-7/rule-output/report.html"
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)


def event_of(detail: object, source: str = STATUS_SOURCE) -> dict[str, Any]:
    return {"source": source, "detail-type": STATUS_DETAIL_TYPE, "detail": detail}


def report(pipeline: Pipeline) -> str | None:
    s3 = pipeline.aws("s3")
    keys = [found["Key"] for found in s3.list_objects_v2(Bucket="tensors")["Contents"]]
    if KEY not in keys:
        return None
    text: str = s3.get_object(Bucket="tensors", Key=KEY)["Body"].read().decode()
    return text


@pytest.fixture
def judged(pipeline: Pipeline) -> Pipeline:
    """A run that found an issue and ended."""
    pipeline.put_job()
    for step in range(4):
        pipeline.put_step(step, num_nan=int(step == 2))
    pipeline.put_marker()
    pipeline.deliver()
    return pipeline


def test_it_is_written_when_the_verdict_is_reported(judged: Pipeline) -> None:
    assert report(judged) is None
    details = judged.announced()
    assert [judged.finish(event_of(detail)) for detail in details][-1] == WRITTEN
    page = report(judged)
    assert page is not None
    assert f"<h3>{RULE}</h3>" in page
    assert "IssuesFound at step 2" in page
    assert "<h1>mnist-7</h1>" in page


def test_not_before_all_rules_have_judged(judged: Pipeline) -> None:
    item = {**judged.state_item(), "rule": {"S": "Other"}, "status": {"S": "InProgress"}}
    item.pop("evidence")
    judged.aws("dynamodb").put_item(TableName="states", Item=item)
    detail = judged.announced()[-1]
    assert judged.finish(event_of(detail)) == NOTHING
    assert report(judged) is None
    judged.aws("dynamodb").put_item(TableName="states", Item={**item, "status": {"S": "Error"}})
    assert judged.finish(event_of(detail)) == WRITTEN
    assert "Other" in (report(judged) or "")


@pytest.mark.parametrize(
    "changes",
    [
        {"counts": {"S": "{"}},
        {"counts": {"S": "[" * 10_000}},
        {"status": {"S": "Fine"}},
        {"ended": {"S": "yes"}},
        {"transition": {"S": "1"}},
    ],
)
def test_a_damaged_state_is_reported(judged: Pipeline, changes: dict[str, Any]) -> None:
    item = {**judged.state_item(), "rule": {"S": "Other"}, **changes}
    judged.aws("dynamodb").put_item(TableName="states", Item=item)
    assert judged.finish(event_of(judged.announced()[-1])) == WRITTEN
    page = report(judged) or ""
    assert "its stored state is damaged" in page
    assert "IssuesFound at step 2" in page


def test_the_end_of_the_job_writes_it_again(judged: Pipeline) -> None:
    judged.finish(state_change())
    assert RULE in (report(judged) or "")


@pytest.mark.parametrize(
    "changes",
    [
        {"TrainingJobName": "other"},
        {"DebugOutputUri": "s3://tensors/mnist-8/debug-output/"},
        {"DebugOutputUri": "s3://elsewhere/mnist-7/debug-output/"},
        {"DebugOutputUri": None},
    ],
)
def test_what_an_event_says_of_other_places_is_not_believed(
    judged: Pipeline, changes: dict[str, Any]
) -> None:
    detail = {**judged.announced()[-1], **changes}
    assert judged.finish(event_of(detail)) == NOTHING
    assert report(judged) is None


def test_a_status_that_an_event_makes_up_is_not_told(pipeline: Pipeline) -> None:
    pipeline.put_job()
    pipeline.put_step(0)
    pipeline.deliver()
    (detail,) = pipeline.announced()
    detail["DebugRuleEvaluationStatuses"][0]["RuleEvaluationStatus"] = "NoIssuesFound"
    assert pipeline.finish(event_of(detail)) == NOTHING
    assert report(pipeline) is None


def test_what_cannot_be_written_is_counted_and_no_error(
    judged: Pipeline, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(clients.s3(), "put_object", refusal("AccessDenied"))
    assert judged.finish(event_of(judged.announced()[-1])) == NOTHING
    reported = [
        json.loads(line) for line in capsys.readouterr().out.splitlines() if line[:1] == "{"
    ]
    assert any("ReportsNotWritten" in line for line in reported)


@given(event=JSON_VALUES | st.builds(event_of, JSON_VALUES))
def test_no_event_of_any_shape_raises(event: object) -> None:
    news = parse_status_change(event)
    assert news is None or (news.training_job_name and news.root_uri)
