"""Alarms: everything that can go wrong is watched, and reaches people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from infra.constructs import metrics
from infra.local.deployment import synthesise
from lambdas.shared.observability import Telemetry
from tests.infra.conftest import load
from tests.infra.queries import Template, only, resources

ROOT = Path(__file__).resolve().parents[2]
TEN = 10


def alarms(template: Template, part: str = "") -> dict[str, Any]:
    return {n: a for n, a in resources(template, "AWS::CloudWatch::Alarm").items() if part in n}


def watched(alarm: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the metrics of an alarm: its own one, or those of its expression."""
    if "Metrics" not in alarm:
        return [alarm]
    return [m["MetricStat"]["Metric"] for m in alarm["Metrics"] if "MetricStat" in m]


def owners(template: Template, metric: str) -> set[str]:
    """Return the logical ids of the resources of which a metric raises an alarm."""
    return {
        text["Fn::GetAtt"][0] if "Fn::GetAtt" in text else text["Ref"]
        for alarm in alarms(template).values()
        for found in watched(alarm)
        if found["MetricName"] == metric
        for dimension in found["Dimensions"]
        for text in [dimension["Value"]]
    }


def test_every_alarm_reaches_the_topic_and_says_what_to_do(
    template: Template, default_template: Template
) -> None:
    for found in (template, default_template):
        topic, _ = only(resources(found, "AWS::SNS::Topic"), "Alerts")
        for alarm in alarms(found).values():
            assert alarm["AlarmActions"] == [{"Ref": topic}]
            assert len(alarm["AlarmDescription"]) > 40


def test_every_dead_letter_raises_an_alarm(default_template: Template) -> None:
    letters = {
        name
        for name, queue in resources(default_template, "AWS::SQS::Queue").items()
        if "RedrivePolicy" not in queue
    }
    assert len(letters) == 25 + 3
    assert owners(default_template, "ApproximateNumberOfMessagesVisible") == letters


def test_every_queue_that_is_not_emptied_raises_an_alarm(default_template: Template) -> None:
    queues = {
        name
        for name, queue in resources(default_template, "AWS::SQS::Queue").items()
        if "RedrivePolicy" in queue
    }
    assert owners(default_template, "ApproximateAgeOfOldestMessage") == queues


@pytest.mark.parametrize("metric", ["Errors", "Throttles"])
def test_every_function_that_fails_raises_an_alarm(default_template: Template, metric: str) -> None:
    functions = set(resources(default_template, "AWS::Lambda::Function"))
    assert owners(default_template, metric) == functions


def test_late_verdicts_of_every_rule_raise_an_alarm(
    template: Template, rules: dict[str, Any]
) -> None:
    ((_, alarm),) = alarms(template, "VerdictLatency").items()
    dimensions = [{d["Name"]: d["Value"] for d in found["Dimensions"]} for found in watched(alarm)]
    assert sorted(d["rule"] for d in dimensions) == sorted(rules)
    assert {d["service"] for d in dimensions} == {"evaluate_rule"}
    assert alarm["Threshold"] == 60_000
    assert alarm["ComparisonOperator"] == "GreaterThanThreshold"


def test_a_stop_that_is_not_confirmed_raises_an_alarm(template: Template) -> None:
    ((_, alarm),) = alarms(template, "StopsNotConfirmed").items()
    (metric,) = watched(alarm)
    assert (metric["Namespace"], metric["MetricName"]) == ("Stepwatch", "StopsNotConfirmed")
    assert metric["Dimensions"] == [{"Name": "service", "Value": "stop_job"}]
    assert alarm["Threshold"] == 0


def test_a_schedule_that_does_not_run_raises_an_alarm(template: Template) -> None:
    ((_, alarm),) = alarms(template, "NoSweep").items()
    assert (alarm["MetricName"], alarm["ComparisonOperator"]) == (
        "Invocations",
        "LessThanThreshold",
    )
    assert (alarm["Threshold"], alarm["Period"], alarm["EvaluationPeriods"]) == (1, 60, 5)
    assert alarm["TreatMissingData"] == "breaching"


def test_an_expression_takes_its_largest_value_and_forgives_silence(
    default_template: Template,
) -> None:
    for name, alarm in alarms(default_template).items():
        if "NoSweep" in name:
            continue
        (expression,) = [m for m in alarm["Metrics"] if "Expression" in m]
        ids = [m["Id"] for m in alarm["Metrics"] if "MetricStat" in m]
        assert 1 <= len(ids) <= TEN
        filled = ", ".join(f"FILL({i}, 0)" for i in ids)
        assert expression["Expression"] == f"MAX([{filled}])"
        assert alarm["TreatMissingData"] == "notBreaching"


def test_essential_alarms_leave_out_those_of_each_rule(template: Template) -> None:
    essential = load(
        synthesise({"stepwatch:rules": "NonFinite,LossDiverging", "stepwatch:alarms": "essential"})
    )
    left = {name.removeprefix("Monitoring")[:-8] for name in alarms(essential)}
    assert left == {
        "DeadLetters",
        "Failures",
        "Errors",
        "Throttles",
        "StopsNotConfirmed",
        "NoSweep",
    }
    every = {name.removeprefix("Monitoring")[:-8] for name in alarms(template)}
    assert every - left == {
        "OldestEvents",
        "EvaluatorErrors",
        "EvaluatorThrottles",
        "VerdictLatency",
    }


def test_metrics_are_called_as_the_functions_call_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    dimensions = metrics.of_evaluator("R")
    telemetry = Telemetry(dimensions["service"], rule=dimensions["rule"])
    with telemetry.invocation(None):
        telemetry.milliseconds(metrics.VERDICT_LATENCY, 1)
    written = json.loads(capsys.readouterr().out.splitlines()[-1])
    (described,) = written["_aws"]["CloudWatchMetrics"]
    assert described["Namespace"] == metrics.NAMESPACE
    assert sorted(described["Dimensions"][0]) == sorted(dimensions)
    assert {name: written[name] for name in dimensions} == dimensions


def test_the_functions_write_the_metrics_that_are_watched() -> None:
    text = "".join(path.read_text() for path in (ROOT / "lambdas").rglob("*.py"))
    for metric in (metrics.VERDICT_LATENCY, metrics.STEPS_EVALUATED, metrics.VERDICTS):
        assert f'"{metric}' in text
    assert '"StopsNotConfirmed"' in text


def test_the_dashboard_shows_every_rule(template: Template, rules: dict[str, Any]) -> None:
    ((_, dashboard),) = resources(template, "AWS::CloudWatch::Dashboard").items()
    assert dashboard["DashboardName"] == "Stepwatch-dev"
    parts = dashboard["DashboardBody"]["Fn::Join"][1]
    text = "".join(part if isinstance(part, str) else f"<{next(iter(part))}>" for part in parts)
    widgets = {w["properties"]["title"]: w["properties"] for w in json.loads(text)["widgets"]}
    for title in ("Milliseconds from tensor to verdict", "Errors", "Dead letters"):
        shown = json.dumps(widgets[title]["metrics"])
        assert all(f'"{rule}"' in shown for rule in rules), title
    counted = [m[0] for m in widgets["Verdicts"]["metrics"] if isinstance(m[0], dict)]
    assert {m["label"] for m in counted} == {"IssuesFound", "NoIssuesFound", "Error"}
    shown_ids = [m[-1]["id"] for m in widgets["Verdicts"]["metrics"] if "id" in m[-1]]
    assert len(shown_ids) == len(set(shown_ids)), "an expression sums the metrics of its status"
    outputs = template["Outputs"]["DashboardUrl"]["Value"]["Fn::Join"][1]
    assert str(outputs[-1]).endswith("#dashboards:name=Stepwatch-dev")
