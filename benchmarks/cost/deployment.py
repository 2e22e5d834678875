"""What a deployment consists of, as far as it costs anything: read from its template."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from lambdas.contracts import environment

__all__ = ["Deployment", "Evaluator", "ScheduledFunction"]

HOURS_A_MONTH: Final = 730.0
"""What the price lists count with."""

_UNITS_S: Final = {"minute": 60, "hour": 3600, "day": 86400}
_RATE: Final = re.compile(r"rate\((\d+) (minute|hour|day)s?\)")
_INDEX_FILES: Final = {"wildcard": "*/index/*.json"}

Template = Mapping[str, Any]


@dataclass(frozen=True)
class Evaluator:
    """A queue, and the function that it feeds.

    Attributes:
        name: Name under which its rule is configured; with "#" before it for a function that has
            no rule of its own, but evaluates what jobs bring along.
        variables: The function's environment variables that are no references.
        memory_mb: Memory of the function in MB.
        batch_size: Largest number of messages in one call.
        window_s: Seconds that a call waits for more messages.
        maximum_concurrency: Calls that may run at the same time; None without a limit.
        hears_of_steps: Whether each index file's event reaches the queue.
    """

    name: str
    variables: Mapping[str, str]
    memory_mb: int
    batch_size: int
    window_s: float
    maximum_concurrency: int | None
    hears_of_steps: bool

    @property
    def rules(self) -> tuple[str, ...]:
        """The deployed rules that it evaluates; none for a function of jobs' rules alone."""
        return (self.name,) if _rule_of(self.name) else tuple(self.grouped)

    @property
    def grouped(self) -> Mapping[str, Any]:
        """The rules whose states are one item, with their parameters; empty for a rule's own."""
        grouped: Mapping[str, Any] = json.loads(self.variables.get(environment.GROUPED_RULES, "{}"))
        return grouped

    def with_rules(self, kept: Collection[str]) -> Evaluator:
        """Return the same evaluator with some of the rules of its group."""
        if not self.grouped:
            return self
        rules = {rule: given for rule, given in self.grouped.items() if rule in kept}
        variables = {environment.GROUPED_RULES: json.dumps(rules)}
        return replace(self, variables={**self.variables, **variables})


@dataclass(frozen=True)
class ScheduledFunction:
    """A function that is called by the clock.

    Attributes:
        name: The function's handler without its last part.
        memory_mb: Its memory in MB.
        calls_a_month: How often it is called.
    """

    name: str
    memory_mb: int
    calls_a_month: float


@dataclass(frozen=True)
class Deployment:
    """The part of a template that costs money.

    Attributes:
        evaluators: What evaluates.
        scheduled: Functions that are called by the clock.
        architecture: Instruction set of the functions.
        alarm_metrics: The rule of each metric that an alarm watches; empty for those of no rule.
        dashboards: The same of each dashboard's metrics.
        num_keys: Keys that the stack makes.
        encrypts_data: Whether buckets and queues are under a key of one's own.
        has_recovery: Whether the table can be put back to any point in time.
        retention_days: Days that logs are kept.
        expiration_days: Days after which what hooks wrote is deleted; 0 where it never is.
    """

    evaluators: tuple[Evaluator, ...]
    scheduled: tuple[ScheduledFunction, ...]
    architecture: str
    alarm_metrics: tuple[str, ...]
    dashboards: tuple[tuple[str, ...], ...]
    num_keys: int
    encrypts_data: bool
    has_recovery: bool
    retention_days: int
    expiration_days: int

    @classmethod
    def of_assembly(cls, assembly: Path) -> Deployment:
        """Return what the template of an assembly deploys."""
        text = (assembly / "Stepwatch.template.json").read_text(encoding="utf-8")
        return cls.of_template(json.loads(text))

    @classmethod
    def of_template(cls, template: Template) -> Deployment:
        """Return what a template deploys."""
        functions = _of_type(template, "AWS::Lambda::Function")
        owners = _owners(template)
        alarms = _of_type(template, "AWS::CloudWatch::Alarm").values()
        (table,) = _of_type(template, "AWS::DynamoDB::Table").values()
        recovery = table.get("PointInTimeRecoverySpecification", {})
        logs = _of_type(template, "AWS::Logs::LogGroup").values()
        return cls(
            evaluators=tuple(_evaluators(template)),
            scheduled=tuple(_scheduled(template)),
            architecture=next(iter(functions.values()))["Architectures"][0],
            alarm_metrics=tuple(
                _owner(metric, owners) for alarm in alarms for metric in _alarm_metrics(alarm)
            ),
            dashboards=tuple(
                tuple(_dashboard_metrics(page, owners))
                for page in _of_type(template, "AWS::CloudWatch::Dashboard").values()
            ),
            num_keys=len(_of_type(template, "AWS::KMS::Key")),
            encrypts_data=any(
                "KmsMasterKeyId" in queue
                for queue in _of_type(template, "AWS::SQS::Queue").values()
            ),
            has_recovery=bool(recovery.get("PointInTimeRecoveryEnabled")),
            retention_days=max(group["RetentionInDays"] for group in logs),
            expiration_days=max(_expirations(template), default=0),
        )

    @property
    def rules(self) -> list[str]:
        """The configured rules, in the order of the template."""
        return [rule for evaluator in self.evaluators for rule in evaluator.rules]

    @property
    def num_items(self) -> int:
        """Items with states of a run: one of each rule, or of each group."""
        return sum(1 for evaluator in self.evaluators if evaluator.rules)

    def with_rules(self, count: int) -> Deployment:
        """Return the same deployment with the first few of its rules.

        Raises:
            ValueError: It has fewer.
        """
        if not 0 <= count <= len(self.rules):
            raise ValueError(
                f"the template deploys {len(self.rules)} rules, not {count}: name more of them in "
                "the setting stepwatch:rules"
            )
        kept = {"", *self.rules[:count]}
        return replace(
            self,
            evaluators=tuple(
                found.with_rules(kept) for found in self.evaluators if _rule_of(found.name) in kept
            ),
            alarm_metrics=tuple(rule for rule in self.alarm_metrics if rule in kept),
            dashboards=tuple(
                tuple(rule for rule in page if rule in kept) for page in self.dashboards
            ),
        )


def _rule_of(name: str) -> str:
    return "" if name.startswith("#") else name


def _of_type(template: Template, kind: str) -> dict[str, Any]:
    """Return the properties of all resources of a type, by their logical ids."""
    return {
        name: resource.get("Properties", {})
        for name, resource in template["Resources"].items()
        if resource["Type"] == kind
    }


def _referred(value: Any) -> str:
    """Return the logical id that a property refers to; empty if it refers to none."""
    if not isinstance(value, dict):
        return ""
    found = value.get("Ref") or value.get("Fn::GetAtt", [""])[0]
    return str(found)


def _expirations(template: Template) -> Iterator[int]:
    """Yield after how many days the objects of each bucket that sends events are deleted."""
    for bucket in _of_type(template, "AWS::S3::Bucket").values():
        if "NotificationConfiguration" in bucket:
            for rule in bucket.get("LifecycleConfiguration", {}).get("Rules", []):
                yield rule.get("ExpirationInDays", 0)


def _evaluators(template: Template) -> Iterator[Evaluator]:
    functions = _of_type(template, "AWS::Lambda::Function")
    heard = _queues_of_steps(template)
    for mapping in _of_type(template, "AWS::Lambda::EventSourceMapping").values():
        function = functions[_referred(mapping["FunctionName"])]
        variables = _variables(function)
        yield Evaluator(
            name=variables[environment.RULE_CONFIGURATION_NAME],
            variables=variables,
            memory_mb=function["MemorySize"],
            batch_size=mapping["BatchSize"],
            window_s=mapping.get("MaximumBatchingWindowInSeconds", 0),
            maximum_concurrency=mapping.get("ScalingConfig", {}).get("MaximumConcurrency"),
            hears_of_steps=_referred(mapping["EventSourceArn"]) in heard,
        )


def _variables(function: Mapping[str, Any]) -> dict[str, str]:
    variables = function.get("Environment", {}).get("Variables", {})
    return {name: value for name, value in variables.items() if isinstance(value, str)}


def _queues_of_steps(template: Template) -> set[str]:
    """Return the queues that the events of index files are sent to."""
    return {
        _referred(target["Arn"])
        for rule in _of_type(template, "AWS::Events::Rule").values()
        for target in rule["Targets"]
        if _INDEX_FILES
        in rule.get("EventPattern", {}).get("detail", {}).get("object", {}).get("key", [])
    }


def _scheduled(template: Template) -> Iterator[ScheduledFunction]:
    functions = _of_type(template, "AWS::Lambda::Function")
    for rule in _of_type(template, "AWS::Events::Rule").values():
        if "ScheduleExpression" not in rule:
            continue
        match = _RATE.fullmatch(rule["ScheduleExpression"])
        if match is None:
            raise ValueError(f"a schedule of an unknown kind: {rule['ScheduleExpression']}")
        every_s = int(match[1]) * _UNITS_S[match[2]]
        for target in rule["Targets"]:
            function = functions[_referred(target["Arn"])]
            name = function["Handler"].rpartition(".")[0]
            calls = HOURS_A_MONTH * 3600 / every_s
            yield ScheduledFunction(name, function["MemorySize"], calls)


def _owners(template: Template) -> dict[str, str]:
    """Return whose rule each function and queue of an evaluator is, by logical id."""
    functions = _of_type(template, "AWS::Lambda::Function")
    queues = _of_type(template, "AWS::SQS::Queue")
    owners: dict[str, str] = {}
    for mapping in _of_type(template, "AWS::Lambda::EventSourceMapping").values():
        function, queue = _referred(mapping["FunctionName"]), _referred(mapping["EventSourceArn"])
        rule = _rule_of(_variables(functions[function])[environment.RULE_CONFIGURATION_NAME])
        dead = queues[queue].get("RedrivePolicy", {}).get("deadLetterTargetArn")
        owners |= dict.fromkeys((function, queue, _referred(dead)), rule)
    return owners


def _alarm_metrics(alarm: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the dimensions of each metric that an alarm watches."""
    if "MetricName" in alarm:
        yield alarm.get("Dimensions", [])
    for metric in alarm.get("Metrics", []):
        if "MetricStat" in metric:
            yield metric["MetricStat"]["Metric"].get("Dimensions", [])


def _owner(dimensions: Any, owners: Mapping[str, str]) -> str:
    for dimension in dimensions:
        if dimension["Name"] == "rule":
            return _rule_of(str(dimension["Value"]))
        owner = owners.get(_referred(dimension["Value"]))
        if owner:
            return owner
    return ""


def _dashboard_metrics(page: Mapping[str, Any], owners: Mapping[str, str]) -> Iterator[str]:
    """Yield the rule of each metric of a dashboard; its body is JSON with references in it."""
    body = page["DashboardBody"]
    parts = body["Fn::Join"][1] if isinstance(body, dict) else [body]
    text = "".join(part if isinstance(part, str) else _referred(part) for part in parts)
    for widget in json.loads(text)["widgets"]:
        for metric in widget["properties"].get("metrics", []):
            words = [word for word in metric if isinstance(word, str)]
            if not words:
                continue  # an expression over the others
            named = dict(zip(words[2::2], words[3::2], strict=False))
            rule = named.get("rule") or next(filter(None, map(owners.get, named.values())), "")
            yield _rule_of(rule)
