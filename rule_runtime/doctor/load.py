"""Checks whether a deployed stack keeps up: throttling, and the age of waiting events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, Final, NamedTuple

from rule_runtime.doctor.finding import Finding, Verdict
from rule_runtime.jobs.aws import Aws, AwsRequestError

__all__ = ["load_findings"]

_LATEST: Final = timedelta(hours=1)
_MAX_QUERIES: Final = 500
"""CloudWatch's maximum of metrics in one request."""
_RIGHTS: Final = "cloudwatch:ListMetrics and cloudwatch:GetMetricData are needed to check this"


class _Check(NamedTuple):
    """A metric, and the value above which something is wrong."""

    subject: str
    namespace: str
    metric: str
    dimension: str
    statistic: str
    limit: float
    unit: str
    remedy: str


_CHECKS: Final = (
    _Check(
        *("throttled functions", "AWS/Lambda", "Throttles", "FunctionName", "Sum", 0, " calls"),
        "request more concurrent executions, or lower stepwatch:maximum_concurrency",
    ),
    _Check(
        *("throttled table", "AWS/DynamoDB", "WriteThrottleEvents", "TableName", "Sum", 0),
        *(" writes", "deploy fewer rules, or save steps less often"),
    ),
    _Check(
        *("oldest events", "AWS/SQS", "ApproximateAgeOfOldestMessage", "QueueName", "Maximum"),
        *(900, " s", "see OldestEvents and DeadLetters on the page Alarms"),
    ),
)


def load_findings(aws: Aws, stack_name: str) -> Iterator[Finding]:
    """Yield findings on the last hour of a stack's functions, table and queues."""
    for check in _CHECKS:
        try:
            values = _latest(aws, check, f"{stack_name}-")
        except AwsRequestError as error:
            yield Finding(check.subject, Verdict.NOTE, str(error), _RIGHTS)
            continue
        above = {name: value for name, value in values.items() if value > check.limit}
        shown = ", ".join(f"{name} {value:.0f}{check.unit}" for name, value in above.items())
        if above:
            yield Finding(
                check.subject, Verdict.PROBLEM, f"in the last hour: {shown}", check.remedy
            )
        else:
            yield Finding(check.subject, Verdict.OK, "none in the last hour")


def _latest(aws: Aws, check: _Check, prefix: str) -> dict[str, float]:
    """Return the value of a metric in the last hour, by the resource without the prefix."""
    found = list(_metrics(aws, check, prefix))
    now = datetime.now(timezone.utc)
    values: dict[str, float] = {}
    for first in range(0, len(found), _MAX_QUERIES):
        part = found[first : first + _MAX_QUERIES]
        answer = aws.call(
            "cloudwatch",
            "get_metric_data",
            StartTime=now - _LATEST,
            EndTime=now,
            MetricDataQueries=_queries(check, part),
        )
        for result in answer["MetricDataResults"]:
            name = _resource(part[int(result["Id"][1:])], check)[len(prefix) :]
            values[name] = max([values.get(name, 0.0), *result["Values"]])
    return values


def _metrics(aws: Aws, check: _Check, prefix: str) -> Iterator[Sequence[Mapping[str, str]]]:
    """Yield the dimensions of a metric of each resource of the stack."""
    page: dict[str, Any] = {"Namespace": check.namespace, "MetricName": check.metric}
    while True:
        answer = aws.call("cloudwatch", "list_metrics", RecentlyActive="PT3H", **page)
        for each in answer["Metrics"]:
            if _resource(each["Dimensions"], check).startswith(prefix):
                yield each["Dimensions"]
        if not answer.get("NextToken"):
            return
        page["NextToken"] = answer["NextToken"]


def _resource(dimensions: Sequence[Mapping[str, str]], check: _Check) -> str:
    named = {each["Name"]: each["Value"] for each in dimensions}
    return named.get(check.dimension, "")


def _queries(
    check: _Check, dimensions: Sequence[Sequence[Mapping[str, str]]]
) -> list[dict[str, Any]]:
    metric = {"Namespace": check.namespace, "MetricName": check.metric}
    period = round(_LATEST.total_seconds())
    return [
        {
            "Id": f"m{number}",
            "MetricStat": {
                "Metric": {**metric, "Dimensions": list(each)},
                "Period": period,
                "Stat": check.statistic,
            },
        }
        for number, each in enumerate(dimensions)
    ]
