"""Alarms for people, and a dashboard."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.config import StepwatchConfig
from infra.constructs.dashboard import Dashboard
from infra.constructs.metrics import (
    VERDICT_LATENCY,
    OwnMetrics,
    age_of_oldest,
    described,
    errors,
    messages_in,
    throttled_writes,
    throttles,
)
from infra.constructs.rule_evaluation import VISIBILITY_TIMEOUTS, RuleEvaluation

__all__ = ["Monitored", "Monitoring"]

METRICS_OF_AN_ALARM = 10
"""CloudWatch's maximum of metrics in one alarm's expression."""

LATE_MINUTES = 10
"""Delay of metric values in minutes; those of queues and logs are slowest.

An expression treats missing values as 0. So an alarm over only the latest minutes would never see
such a value.
"""
OLDEST_MESSAGE_S = 900
THROTTLED_MINUTES = 5
FAILED_DELIVERIES = 3
MINUTES_WITHOUT_CALL = 5


@dataclass(frozen=True)
class Monitored:
    """The monitored resources by name.

    `each_minute` contains the functions that a schedule calls each minute, by id of the alarm for
    missing calls.
    """

    evaluations: Mapping[str, RuleEvaluation]
    functions: Mapping[str, lambda_.IFunction]
    failures: Mapping[str, sqs.IQueue]
    each_minute: Mapping[str, lambda_.IFunction]
    table: dynamodb.ITable


class Monitoring(Construct):
    """A dashboard, and alarms that notify the topic.

    An alarm watches up to ten rules at once, because a stack is limited in its number of alarms.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        config: StepwatchConfig,
        topic: sns.ITopic,
        monitored: Monitored,
    ) -> None:
        """Create alarms and dashboard."""
        super().__init__(scope, id_)
        self._action = actions.SnsAction(topic)
        self._own = OwnMetrics(config.stage)
        self._watch_all(monitored)
        if config.cost_alarm_usd_per_day is not None:
            self._watch_cost(config.cost_alarm_usd_per_day)
        if config.alarms == "all":
            self._watch_rules(config, monitored.evaluations)
        self.dashboard = Dashboard(
            self,
            "Dashboard",
            name=config.stack_name,
            own=self._own,
            evaluations=monitored.evaluations,
            functions=monitored.functions,
        )

    def _watch_all(self, monitored: Monitored) -> None:
        self._alarm(
            "DeadLetters",
            {n: messages_in(e.dead_letters) for n, e in monitored.evaluations.items()},
            threshold=0,
            description="Events were not evaluated after all retries, or could not be delivered",
        )
        self._alarm(
            "Failures",
            {name: messages_in(queue) for name, queue in monitored.failures.items()},
            threshold=0,
            description="Events were not handled after all retries; those of stop_job are jobs "
            "that a person must check",
        )
        self._alarm(
            "Errors",
            {name: errors(function) for name, function in monitored.functions.items()},
            threshold=0,
            description="A function failed: read its log",
        )
        self._alarm(
            "Throttles",
            {name: throttles(function) for name, function in monitored.functions.items()},
            threshold=0,
            description="Lambda throttled calls: request more concurrency for this account",
        )
        self._alarm(
            "TableThrottles",
            throttled_writes(monitored.table),
            threshold=0,
            minutes=THROTTLED_MINUTES,
            within=THROTTLED_MINUTES,
            description="DynamoDB throttles writes of the state table: verdicts are late",
        )
        self._alarm(
            "StopsNotConfirmed",
            {"stop_job": self._own.of_stop_job("StopsNotConfirmed", "Sum")},
            threshold=0,
            description="A job continues after a stop request: check it",
        )
        for id_, function in monitored.each_minute.items():
            self._alarm_without_call(id_, function)

    def _watch_cost(self, dollars: int) -> None:
        what = "The functions cost more in a day than stepwatch:cost_alarm_usd_per_day"
        alarm = cloudwatch.Alarm(
            self,
            "CostPerDay",
            metric=self._own.cost_of_a_day(),
            threshold=dollars,
            evaluation_periods=1,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
            alarm_description=described(what, "CostPerDay"),
        )
        alarm.add_alarm_action(self._action)

    def _watch_rules(
        self, config: StepwatchConfig, evaluations: Mapping[str, RuleEvaluation]
    ) -> None:
        self._alarm(
            "OldestEvents",
            {name: age_of_oldest(e.queue) for name, e in evaluations.items()},
            threshold=OLDEST_MESSAGE_S,
            description="Events wait long for an evaluator: it fails, or is too slow",
        )
        # A failed batch is hidden for this time before it is redelivered.
        hidden_s = VISIBILITY_TIMEOUTS * config.evaluator_timeout_s + config.batching_window_s
        self._alarm(
            "EvaluatorErrors",
            {name: errors(e.evaluator.function) for name, e in evaluations.items()},
            threshold=0,
            minutes=FAILED_DELIVERIES,
            within=math.ceil(FAILED_DELIVERIES * hidden_s / 60),
            description="An evaluator fails repeatedly: read its log",
        )
        self._alarm(
            "EvaluatorThrottles",
            {name: throttles(e.evaluator.function) for name, e in evaluations.items()},
            threshold=0,
            minutes=THROTTLED_MINUTES,
            within=THROTTLED_MINUTES,
            description="Lambda throttles evaluators: request more concurrency for this account",
        )
        self._alarm(
            "VerdictLatency",
            {
                name: self._own.of_evaluator(name, VERDICT_LATENCY, "Maximum")
                for name in evaluations
            },
            threshold=config.verdict_latency_s * 1000,
            description="A verdict was late: milliseconds after its tensors",
        )

    def _alarm(
        self,
        id_: str,
        metrics: Mapping[str, cloudwatch.IMetric],
        *,
        threshold: float,
        description: str,
        minutes: int = 1,
        within: int = 0,
    ) -> None:
        """Create one alarm per ten metrics; it is on while one of them exceeds a threshold.

        The threshold must be exceeded in `minutes`, out of `within` plus the delay of values. The
        runbook calls the alarm `id_`.
        """
        names = sorted(metrics)
        for first in range(0, len(names), METRICS_OF_AN_ALARM):
            part = names[first : first + METRICS_OF_AN_ALARM]
            alarm = cloudwatch.Alarm(
                self,
                id_ if len(names) <= METRICS_OF_AN_ALARM else f"{id_}{first}",
                metric=_largest([metrics[name] for name in part]),
                comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
                threshold=threshold,
                evaluation_periods=within + LATE_MINUTES,
                datapoints_to_alarm=minutes,
                treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
                alarm_description=described(f"{description}. Watches {', '.join(part)}", id_),
            )
            alarm.add_alarm_action(self._action)

    def _alarm_without_call(self, id_: str, function: lambda_.IFunction) -> None:
        alarm = cloudwatch.Alarm(
            self,
            id_,
            metric=function.metric_invocations(period=cdk.Duration.minutes(1), statistic="Sum"),
            comparison_operator=cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
            threshold=1,
            evaluation_periods=MINUTES_WITHOUT_CALL,
            treat_missing_data=cloudwatch.TreatMissingData.BREACHING,
            alarm_description=described("The schedule does not call its function", id_),
        )
        alarm.add_alarm_action(self._action)


def _largest(metrics: Sequence[cloudwatch.IMetric]) -> cloudwatch.MathExpression:
    using = {f"m{number}": metric for number, metric in enumerate(metrics)}
    # A metric without data would leave the whole expression without data.
    filled = ", ".join(f"FILL({name}, 0)" for name in using)
    return cloudwatch.MathExpression(
        expression=f"MAX([{filled}])",
        using_metrics=using,
        period=cdk.Duration.minutes(1),
    )
