"""Metrics for alarms and the dashboard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs

from lambdas.contracts.events import ACTIVE_INDEX
from lambdas.contracts.metrics import ESTIMATED_COST, EVERY_FUNCTION, namespace_of

__all__ = [
    "REQUESTS",
    "STEPS_EVALUATED",
    "VERDICTS",
    "VERDICT_LATENCY",
    "OwnMetrics",
    "age_of_oldest",
    "described",
    "errors",
    "messages_in",
    "throttled_writes",
    "throttles",
]

RUNBOOK: Final = "the documentation of Stepwatch, page Alarms, section 'When an alarm is on'"
"""A description without a link, because readers may have no access to this repository."""
MINUTE: Final = cdk.Duration.minutes(1)

REQUESTS: Final = "Requests"
STEPS_EVALUATED: Final = "StepsEvaluated"
VERDICTS: Final = "Verdicts"
VERDICT_LATENCY: Final = "VerdictLatency"


@dataclass(frozen=True)
class OwnMetrics:
    """The metrics that the functions of a deployment write themselves.

    A test compares the metrics in a template with those that the functions write.
    """

    stage: str

    def of_evaluator(self, rule: str, name: str, statistic: str) -> cloudwatch.Metric:
        """Return a metric of a rule's evaluator."""
        return self._metric(name, {"service": "evaluate_rule", "rule": rule}, statistic)

    def of_stop_job(self, name: str, statistic: str) -> cloudwatch.Metric:
        """Return a metric of the function that stops jobs."""
        return self._metric(name, {"service": "stop_job"}, statistic)

    def cost_of_a_day(self) -> cloudwatch.Metric:
        """Return the dollars that all functions estimate for a day."""
        day = cdk.Duration.days(1)
        return self._metric(ESTIMATED_COST, {"service": EVERY_FUNCTION}, "Sum", day)

    def _metric(
        self,
        name: str,
        dimensions: Mapping[str, str],
        statistic: str,
        period: cdk.Duration = MINUTE,
    ) -> cloudwatch.Metric:
        return cloudwatch.Metric(
            namespace=namespace_of(self.stage),
            metric_name=name,
            dimensions_map=dict(dimensions),
            statistic=statistic,
            period=period,
        )


def described(what: str, id_: str) -> str:
    """Return the description of an alarm, which names its section of the runbook."""
    return f"{what}. What to do: see {RUNBOOK}, {id_}."


def messages_in(queue: sqs.IQueue) -> cloudwatch.Metric:
    """Return the number of waiting messages in a queue."""
    return queue.metric_approximate_number_of_messages_visible(period=MINUTE, statistic="Maximum")


def age_of_oldest(queue: sqs.IQueue) -> cloudwatch.Metric:
    """Return the age of the oldest message of a queue, in seconds."""
    return queue.metric_approximate_age_of_oldest_message(period=MINUTE, statistic="Maximum")


def errors(function: lambda_.IFunction) -> cloudwatch.Metric:
    """Return the number of failed calls of a function."""
    return function.metric_errors(period=MINUTE, statistic="Sum")


def throttles(function: lambda_.IFunction) -> cloudwatch.Metric:
    """Return the number of calls of a function that were held back."""
    return function.metric_throttles(period=MINUTE, statistic="Sum")


def throttled_writes(table: dynamodb.ITable) -> dict[str, cloudwatch.IMetric]:
    """Return the numbers of throttled writes of a table and of its index, by their names."""
    of_table = {"TableName": table.table_name}
    return {
        name: cloudwatch.Metric(
            namespace="AWS/DynamoDB",
            metric_name="WriteThrottleEvents",
            dimensions_map={**of_table, **more},
            statistic="Sum",
            period=MINUTE,
        )
        for name, more in {
            "the table": {},
            "its index": {"GlobalSecondaryIndexName": ACTIVE_INDEX},
        }.items()
    }
