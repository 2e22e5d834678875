"""Alarms: everything that can go wrong is watched, and reaches people."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lambdas.contracts.console import CONSOLE_DOMAINS
from lambdas.contracts.environment import (
    ESTIMATES_COST,
    METRICS_NAMESPACE,
    RULE_CONFIGURATION_NAME,
)
from lambdas.contracts.metrics import ESTIMATED_COST
from lambdas.shared.observability import Telemetry
from tests.infra.queries import Template, only, resources

ROOT = Path(__file__).resolve().parents[2]
TEN = 10
SCHEDULED = re.compile("No(Sweep|FollowUp)")


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
    evaluators = resources(default_template, "AWS::Lambda::EventSourceMapping")
    assert len(letters) == len(evaluators) + 3
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


def test_late_verdicts_of_every_rule_raise_an_alarm(template: Template) -> None:
    ((_, alarm),) = alarms(template, "VerdictLatency").items()
    dimensions = [{d["Name"]: d["Value"] for d in found["Dimensions"]} for found in watched(alarm)]
    reported = [
        function["Environment"]["Variables"]
        for function in resources(template, "AWS::Lambda::Function").values()
    ]
    rules = [
        names[RULE_CONFIGURATION_NAME] for names in reported if RULE_CONFIGURATION_NAME in names
    ]
    assert sorted(d["rule"] for d in dimensions) == sorted(rules)
    assert {d["service"] for d in dimensions} == {"evaluate_rule"}
    assert alarm["Threshold"] == 60_000
    assert alarm["ComparisonOperator"] == "GreaterThanThreshold"


def test_a_stop_that_is_not_confirmed_raises_an_alarm(template: Template) -> None:
    ((_, alarm),) = alarms(template, "StopsNotConfirmed").items()
    (metric,) = watched(alarm)
    assert (metric["Namespace"], metric["MetricName"]) == ("Stepwatch/dev", "StopsNotConfirmed")
    assert metric["Dimensions"] == [{"Name": "service", "Value": "stop_job"}]
    assert alarm["Threshold"] == 0


@pytest.mark.parametrize(
    ("part", "function"), [("NoSweep", "SweepSweeper"), ("NoFollowUp", "StopJobStopTrainingJob")]
)
def test_a_schedule_that_does_not_run_raises_an_alarm(
    template: Template, part: str, function: str
) -> None:
    ((_, alarm),) = alarms(template, part).items()
    (dimension,) = alarm["Dimensions"]
    assert dimension["Value"]["Ref"].startswith(function)
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
        if SCHEDULED.search(name):
            continue
        (expression,) = [m for m in alarm["Metrics"] if "Expression" in m]
        ids = [m["Id"] for m in alarm["Metrics"] if "MetricStat" in m]
        assert 1 <= len(ids) <= TEN
        filled = ", ".join(f"FILL({i}, 0)" for i in ids)
        assert expression["Expression"] == f"MAX([{filled}])"
        assert alarm["TreatMissingData"] == "notBreaching"


@pytest.mark.parametrize("name", ["default_template", "full_template"])
def test_a_value_that_is_late_still_raises_an_alarm(
    name: str, request: pytest.FixtureRequest
) -> None:
    """FILL takes a minute whose value has not come yet for 0, and nobody looks at it again."""
    for alarm in alarms(request.getfixturevalue(name)).values():
        if "Metrics" in alarm:
            assert alarm["EvaluationPeriods"] - alarm["DatapointsToAlarm"] >= TEN - 1


def test_an_evaluator_that_always_fails_raises_an_alarm(template: Template) -> None:
    """One message comes back no sooner than the queue lets it."""
    ((_, alarm),) = alarms(template, "EvaluatorErrors").items()
    hidden_s = {
        queue["VisibilityTimeout"]
        for queue in resources(template, "AWS::SQS::Queue").values()
        if "RedrivePolicy" in queue
    }
    failures_at_s = [number * max(hidden_s) for number in range(alarm["DatapointsToAlarm"])]
    assert len(failures_at_s) > 1, "a single failure is made good by the next delivery"
    assert failures_at_s[-1] + TEN * 60 <= alarm["EvaluationPeriods"] * 60


def test_no_alarm_looks_back_longer_than_cloudwatch_does(full_template: Template) -> None:
    """With the longest time limit an evaluator may have."""
    for alarm in alarms(full_template).values():
        assert alarm["EvaluationPeriods"] <= 24 * 60
        assert len(alarm["AlarmDescription"]) <= 1024


def test_essential_alarms_leave_out_those_of_each_rule(
    template: Template, frugal_template: Template
) -> None:
    left = {name.removeprefix("Monitoring")[:-8] for name in alarms(frugal_template)}
    assert left == {
        "DeadLetters",
        "Failures",
        "Errors",
        "Throttles",
        "TableThrottles",
        "StopsNotConfirmed",
        "NoSweep",
        "NoFollowUp",
    }
    every = {name.removeprefix("Monitoring")[:-8] for name in alarms(template)}
    assert every - left == {
        "OldestEvents",
        "EvaluatorErrors",
        "EvaluatorThrottles",
        "VerdictLatency",
    }


def own_metrics(template: Template) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield namespace, name and dimensions of our own metrics in alarms and on the dashboard."""
    for alarm in alarms(template).values():
        for found in watched(alarm):
            if not found["Namespace"].startswith("AWS/"):
                dimensions = {d["Name"]: d["Value"] for d in found["Dimensions"]}
                yield found["Namespace"], found["MetricName"], dimensions
    for widget in widgets(template).values():
        for shown in widget["metrics"]:
            texts = [part for part in shown if isinstance(part, str)]
            if texts and not texts[0].startswith("AWS/"):
                yield texts[0], texts[1], dict(zip(texts[2::2], texts[3::2], strict=True))


def widgets(template: Template) -> dict[str, Any]:
    """Return the properties of the dashboard's widgets by title."""
    ((_, dashboard),) = resources(template, "AWS::CloudWatch::Dashboard").items()
    parts = dashboard["DashboardBody"]["Fn::Join"][1]
    text = "".join(part if isinstance(part, str) else f"<{next(iter(part))}>" for part in parts)
    return {w["properties"]["title"]: w["properties"] for w in json.loads(text)["widgets"]}


def written_by(function: str) -> list[re.Pattern[str]]:
    """Return what the metrics that a function's code writes are called."""
    patterns = [re.compile("Requests")]
    for path in (ROOT / "lambdas" / function).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in {"count", "seconds", "milliseconds"}
                and node.args
            ):
                match node.args[0]:
                    case ast.Constant(value=str(text)):
                        patterns.append(re.compile(re.escape(text)))
                    case ast.JoinedStr(values=[ast.Constant(value=str(text)), _]):
                        patterns.append(re.compile(re.escape(text) + "[A-Z][A-Za-z]+"))
    return patterns


def environment_of(template: Template, function: str, rule: str | None) -> dict[str, Any]:
    """Return the variables of a function; those of a rule's evaluator, if a rule is named."""
    (found,) = [
        reported
        for deployed in resources(template, "AWS::Lambda::Function").values()
        if deployed["Handler"].split(".")[1] == function
        for reported in [deployed["Environment"]["Variables"]]
        if rule == reported.get(RULE_CONFIGURATION_NAME)
    ]
    return dict(found)


@pytest.mark.parametrize("name", ["default_template", "full_template"])
def test_metrics_are_those_that_the_functions_write(
    name: str,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: Template = request.getfixturevalue(name)
    shown = [own for own in own_metrics(found) if own[1] != ESTIMATED_COST]
    assert {metric for _, metric, _ in shown} >= {"VerdictLatency", "StopsNotConfirmed", "Requests"}
    for namespace, metric, dimensions in shown:
        function = dimensions["service"]
        reported = environment_of(found, function, dimensions.get("rule"))
        monkeypatch.setenv(METRICS_NAMESPACE, reported[METRICS_NAMESPACE])
        rest = {key: value for key, value in dimensions.items() if key != "service"}
        telemetry = Telemetry(function, **rest)
        with telemetry.invocation(None):
            telemetry.count(metric)
        written = json.loads(capsys.readouterr().out.splitlines()[-1])
        (described,) = written["_aws"]["CloudWatchMetrics"]
        assert described["Namespace"] == namespace
        assert sorted(described["Dimensions"][0]) == sorted(dimensions)
        assert {key: written[key] for key in dimensions} == dimensions
        assert any(p.fullmatch(metric) for p in written_by(function)), f"{function}: {metric}"


def test_the_alarm_on_cost_watches_what_every_function_writes(
    template: Template,
    full_template: Template,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ((_, alarm),) = alarms(full_template, "CostPerDay").items()
    assert (alarm["Statistic"], alarm["Period"], alarm["Threshold"]) == ("Sum", 86400, 20)
    (dimension,) = alarm["Dimensions"]
    for function in resources(full_template, "AWS::Lambda::Function").values():
        reported = function["Environment"]["Variables"]
        for name in (ESTIMATES_COST, METRICS_NAMESPACE):
            monkeypatch.setenv(name, reported[name])
        with Telemetry("any", rule="any").invocation(None):
            pass
        (line,) = map(json.loads, capsys.readouterr().out.splitlines())
        (described,) = line["_aws"]["CloudWatchMetrics"]
        assert described["Namespace"] == alarm["Namespace"]
        assert described["Dimensions"] == [[dimension["Name"]]]
        assert [metric["Name"] for metric in described["Metrics"]] == [alarm["MetricName"]]
        assert line[dimension["Name"]] == dimension["Value"]
    assert not alarms(template, "CostPerDay"), "only with the setting"
    assert ESTIMATES_COST not in str(template)


def test_metrics_of_two_stages_do_not_mix(template: Template, full_template: Template) -> None:
    assert {namespace for namespace, _, _ in own_metrics(template)} == {"Stepwatch/dev"}
    assert {namespace for namespace, _, _ in own_metrics(full_template)} == {"Stepwatch/prod"}


def test_the_dashboard_shows_every_rule(template: Template, rules: dict[str, Any]) -> None:
    found = widgets(template)
    for title in ("Milliseconds from tensor to verdict", "Requests to AWS", "Errors"):
        shown = json.dumps(found[title]["metrics"])
        assert all(f'"{rule}"' in shown for rule in rules), title
    counted = [m[0] for m in found["Verdicts"]["metrics"] if isinstance(m[0], dict)]
    assert {m["label"] for m in counted} == {"IssuesFound", "NoIssuesFound", "Error"}
    shown_ids = [m[-1]["id"] for m in found["Verdicts"]["metrics"] if "id" in m[-1]]
    assert len(shown_ids) == len(set(shown_ids)), "an expression sums the metrics of its status"


def test_the_dashboards_of_two_regions_differ_and_each_is_found(template: Template) -> None:
    """Names of dashboards are those of an account, in all of its regions."""
    ((_, dashboard),) = resources(template, "AWS::CloudWatch::Dashboard").items()
    region = {"Ref": "AWS::Region"}
    assert dashboard["DashboardName"] == {"Fn::Join": ["", ["Stepwatch-dev-", region]]}
    parts = template["Outputs"]["DashboardUrl"]["Value"]["Fn::Join"][1]
    (domain,) = [part for part in parts if "Fn::FindInMap" in part]
    text = "".join(p if isinstance(p, str) else "<>" if p == domain else "eu-west-1" for p in parts)
    assert text == (
        "https://eu-west-1.<>/cloudwatch/home?region=eu-west-1"
        "#dashboards:name=Stepwatch-dev-eu-west-1"
    )
    mapping, partition, key = domain["Fn::FindInMap"]
    assert partition == {"Ref": "AWS::Partition"}
    domains = {name: row[key] for name, row in template["Mappings"][mapping].items()}
    assert domains == dict(CONSOLE_DOMAINS)


def test_the_runbook_has_a_word_on_every_alarm_and_on_no_other(full_template: Template) -> None:
    text = (ROOT / "docs" / "how-to" / "alarms.md").read_text()
    _, _, runbook = text.partition("\n## When an alarm is on\n")
    described = re.findall(r"^### (\w+)\n\n\*.+\*", runbook.partition("\n## ")[0], re.MULTILINE)
    named = {
        alarm["AlarmDescription"].rpartition(", ")[2].rstrip(".")
        for alarm in alarms(full_template).values()
    }
    assert sorted(described) == sorted(named)
    for alarm_id, alarm in alarms(full_template).items():
        where = "the documentation of Stepwatch, page Alarms, section 'When an alarm is on', "
        assert where in alarm["AlarmDescription"]
        assert any(name in alarm_id for name in named)


def test_the_runbook_says_how_late_an_alarm_may_be(default_template: Template) -> None:
    ((_, alarm),) = alarms(default_template, "StopsNotConfirmed").items()
    assert alarm["EvaluationPeriods"] == TEN
    assert "ten minutes late" in (ROOT / "docs" / "how-to" / "alarms.md").read_text()
