"""The metrics that alarms and the dashboard show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs

__all__ = [
    "NAMESPACE",
    "STEPS_EVALUATED",
    "VERDICTS",
    "VERDICT_LATENCY",
    "age_of_oldest",
    "errors",
    "messages_in",
    "of_evaluator",
    "own_metric",
    "throttles",
]

NAMESPACE: Final = "Stepwatch"
"""Of the functions' own metrics; a test compares it with what they write."""

MINUTE: Final = cdk.Duration.minutes(1)


VERDICT_LATENCY: Final = "VerdictLatency"
STEPS_EVALUATED: Final = "StepsEvaluated"
VERDICTS: Final = "Verdicts"


def of_evaluator(rule: str) -> dict[str, str]:
    """Return the dimensions of the metrics that the evaluator of a rule writes."""
    return {"service": "evaluate_rule", "rule": rule}


def own_metric(name: str, dimensions: Mapping[str, str], statistic: str) -> cloudwatch.Metric:
    """Return a metric that a function writes itself."""
    return cloudwatch.Metric(
        namespace=NAMESPACE,
        metric_name=name,
        dimensions_map=dict(dimensions),
        statistic=statistic,
        period=MINUTE,
    )


def messages_in(queue: sqs.IQueue) -> cloudwatch.Metric:
    """Return the number of messages that wait in a queue."""
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
