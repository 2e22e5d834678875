"""Alarms that reach people, and one page to look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.config import StepwatchConfig
from infra.constructs.dashboard import Dashboard
from infra.constructs.metrics import (
    VERDICT_LATENCY,
    age_of_oldest,
    errors,
    messages_in,
    of_evaluator,
    own_metric,
    throttles,
)
from infra.constructs.rule_evaluation import RuleEvaluation

__all__ = ["Monitored", "Monitoring"]

METRICS_OF_AN_ALARM = 10
"""The most that CloudWatch takes into the expression of one alarm."""

OLDEST_MESSAGE_S = 900
SWEEPLESS_MINUTES = 5


@dataclass(frozen=True)
class Monitored:
    """What is watched.

    Attributes:
        evaluations: The evaluation of each rule, by its name.
        functions: The other functions by name.
        failures: The queues of their failures, by the same names.
        sweep: The function that runs each minute.
    """

    evaluations: Mapping[str, RuleEvaluation]
    functions: Mapping[str, lambda_.IFunction]
    failures: Mapping[str, sqs.IQueue]
    sweep: lambda_.IFunction


class Monitoring(Construct):
    """Alarms, each of which sends to the topic when it goes on, and a dashboard.

    An alarm watches up to ten rules at once: a stack may not have an alarm for each of them and
    each thing that can go wrong.

    Attributes:
        dashboard: The dashboard.
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
        """Create alarms and dashboard.

        Args:
            scope: Parent construct.
            id_: Id of this construct.
            config: Settings of the deployment.
            topic: Where alarms are sent.
            monitored: What is watched.
        """
        super().__init__(scope, id_)
        self._action = actions.SnsAction(topic)
        self._watch_all(monitored)
        if config.alarms == "all":
            self._watch_rules(config, monitored.evaluations)
        self.dashboard = Dashboard(
            self,
            "Dashboard",
            name=config.stack_name,
            evaluations=monitored.evaluations,
            functions=monitored.functions,
        )

    def _watch_all(self, monitored: Monitored) -> None:
        self._alarm(
            "DeadLetters",
            {n: messages_in(e.dead_letters) for n, e in monitored.evaluations.items()},
            threshold=0,
            description="Events were not evaluated after all retries: read the dead letters of the "
            "rule and the log of its function, then start a redrive",
        )
        self._alarm(
            "Failures",
            {name: messages_in(queue) for name, queue in monitored.failures.items()},
            threshold=0,
            description="Events were not handled after all retries; those of stop_job are jobs "
            "that somebody must look at",
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
            description="Lambda held calls back: ask for more concurrency in this account",
        )
        self._alarm(
            "StopsNotConfirmed",
            {"stop_job": own_metric("StopsNotConfirmed", {"service": "stop_job"}, "Sum")},
            threshold=0,
            description="A job that was asked to stop has not ended in time: look at it",
        )
        self._alarm_without_sweep(monitored.sweep)

    def _watch_rules(
        self, config: StepwatchConfig, evaluations: Mapping[str, RuleEvaluation]
    ) -> None:
        self._alarm(
            "OldestEvents",
            {name: age_of_oldest(e.queue) for name, e in evaluations.items()},
            threshold=OLDEST_MESSAGE_S,
            description="Events wait long for an evaluator: it fails, or is too slow",
        )
        self._alarm(
            "EvaluatorErrors",
            {name: errors(e.evaluator.function) for name, e in evaluations.items()},
            threshold=0,
            minutes=5,
            description="An evaluator fails again and again: read its log",
        )
        self._alarm(
            "EvaluatorThrottles",
            {name: throttles(e.evaluator.function) for name, e in evaluations.items()},
            threshold=0,
            minutes=5,
            description="Lambda holds evaluators back: ask for more concurrency in this account",
        )
        self._alarm(
            "VerdictLatency",
            {
                name: own_metric(VERDICT_LATENCY, of_evaluator(name), "Maximum")
                for name in evaluations
            },
            threshold=config.verdict_latency_s * 1000,
            description="A verdict came late after the tensors that it is about; in milliseconds",
        )

    def _alarm(
        self,
        id_: str,
        metrics: Mapping[str, cloudwatch.IMetric],
        *,
        threshold: float,
        description: str,
        minutes: int = 1,
    ) -> None:
        """Create an alarm for each ten metrics that is on while one of them exceeds a threshold."""
        names = sorted(metrics)
        for first in range(0, len(names), METRICS_OF_AN_ALARM):
            part = names[first : first + METRICS_OF_AN_ALARM]
            alarm = cloudwatch.Alarm(
                self,
                id_ if len(names) <= METRICS_OF_AN_ALARM else f"{id_}{first}",
                metric=_largest([metrics[name] for name in part]),
                comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
                threshold=threshold,
                evaluation_periods=minutes,
                treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
                alarm_description=f"{description}. Watches {', '.join(part)}.",
            )
            alarm.add_alarm_action(self._action)

    def _alarm_without_sweep(self, sweep: lambda_.IFunction) -> None:
        alarm = cloudwatch.Alarm(
            self,
            "NoSweep",
            metric=sweep.metric_invocations(period=cdk.Duration.minutes(1), statistic="Sum"),
            comparison_operator=cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
            threshold=1,
            evaluation_periods=SWEEPLESS_MINUTES,
            treat_missing_data=cloudwatch.TreatMissingData.BREACHING,
            alarm_description="Nobody looks after silent runs: the schedule does not call its "
            "function.",
        )
        alarm.add_alarm_action(self._action)


def _largest(metrics: Sequence[cloudwatch.IMetric]) -> cloudwatch.MathExpression:
    using = {f"m{number}": metric for number, metric in enumerate(metrics)}
    # A metric without data would leave the whole expression without.
    filled = ", ".join(f"FILL({name}, 0)" for name in using)
    return cloudwatch.MathExpression(
        expression=f"MAX([{filled}])",
        using_metrics=using,
        period=cdk.Duration.minutes(1),
    )
