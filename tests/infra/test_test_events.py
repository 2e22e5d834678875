"""Test events for the console: one for each function, and each means something to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft4Validator

from infra.constructs.event_schema import SCHEMAS
from lambdas.contracts.events import notable_statuses_pattern, training_job_changed_pattern
from lambdas.evaluate_rule.messages import TensorObject, parse_message
from lambdas.finish_job.events import parse_job_event
from lambdas.notify.events import parse_event
from lambdas.stop_job.request import Origin, parse_request
from tests.infra.queries import Template, resources

SCHEMA = SCHEMAS["StatusEvent"].file
FOLDER = SCHEMA.parent.parent / "test_events"


def load(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_text())


def test_each_function_has_one(template: Template) -> None:
    functions = resources(template, "AWS::Lambda::Function").values()
    names = {function["Handler"].split(".")[1] for function in functions}
    assert {path.stem for path in FOLDER.glob("*.json")} == names


def test_an_evaluator_is_told_of_a_step() -> None:
    (record,) = load("evaluate_rule")["Records"]
    found = parse_message(record["body"], {"my-tensor-bucket"})
    assert isinstance(found, TensorObject)
    assert found.root_uri == "s3://my-tensor-bucket/mnist-7/debug-output/"
    assert not found.is_end_marker


def test_a_finding_stops_a_job() -> None:
    request = parse_request(load("stop_job"))
    assert (request.training_job_name, request.origin) == ("mnist-7", Origin.DIRECT)
    assert [finding.rule for finding in request.findings] == ["NonFinite"]


def test_a_job_has_ended() -> None:
    event = load("finish_job")
    found = parse_job_event(event)
    assert found is not None
    assert found.training_job_name == "mnist-7"
    assert found.has_ended
    pattern = training_job_changed_pattern()
    assert [event["source"]] == pattern["source"]
    assert [event["detail-type"]] == pattern["detail-type"]


def test_a_finding_is_news_and_fits_the_schema() -> None:
    event = load("notify")
    Draft4Validator(json.loads(Path(SCHEMA).read_text())).validate(event)
    assert len(parse_event(event)) == 1
    pattern = notable_statuses_pattern(["IssuesFound"])
    assert event["source"] in pattern["source"]


def test_the_schedule_sends_an_event_of_its_own() -> None:
    assert load("sweep")["detail-type"] == "Scheduled Event"


@pytest.mark.parametrize("folder", ["schemas", "test_events"])
def test_none_of_them_is_uploaded(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from infra import packaging

    monkeypatch.setattr(packaging, "BUILD", tmp_path)
    uploaded = packaging.stage_function() / "lambdas" / "contracts"
    assert (uploaded / "events.py").exists()
    assert not (uploaded / folder).exists()
