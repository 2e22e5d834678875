"""The dashboard of a deployment: work and obstacles of its evaluators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.constructs.metrics import (
    REQUESTS,
    STEPS_EVALUATED,
    VERDICT_LATENCY,
    VERDICTS,
    OwnMetrics,
    age_of_oldest,
    errors,
    messages_in,
    throttles,
)
from infra.constructs.rule_evaluation import RuleEvaluation
from lambdas.contracts.console import CONSOLE_DOMAINS

__all__ = ["Dashboard"]

WIDTH, HEIGHT = 12, 6
COUNTED_STATUSES = ("IssuesFound", "NoIssuesFound", "Error")
STOPS = ("JobsStopped", "StopsRefused", "StopsNotConfirmed")


class Dashboard(Construct):
    """The dashboard; `url` is its address in the console."""

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        name: str,
        own: OwnMetrics,
        evaluations: Mapping[str, RuleEvaluation],
        functions: Mapping[str, lambda_.IFunction],
    ) -> None:
        """Create the dashboard.

        `name` gets the Region appended, because names are unique per account.
        """
        super().__init__(scope, id_)
        region = cdk.Stack.of(self).region
        page = cloudwatch.Dashboard(self, "Page", dashboard_name=f"{name}-{region}")
        page.add_widgets(
            *_of_evaluations(own, evaluations), *_of_functions(own, evaluations, functions)
        )
        self.url = (
            f"https://{region}.{self._console()}/cloudwatch/home"
            f"?region={region}#dashboards:name={name}-{region}"
        )

    def _console(self) -> str:
        domains = cdk.CfnMapping(
            self,
            "Consoles",
            mapping={
                partition: {"domain": domain} for partition, domain in CONSOLE_DOMAINS.items()
            },
        )
        return domains.find_in_map(cdk.Aws.PARTITION, "domain")


def _of_evaluations(
    own: OwnMetrics, evaluations: Mapping[str, RuleEvaluation]
) -> list[cloudwatch.GraphWidget]:
    def of_rules(metric: str, statistic: str) -> list[cloudwatch.IMetric]:
        return [_called(rule, own.of_evaluator(rule, metric, statistic)) for rule in evaluations]

    return [
        _graph("Verdicts", _verdicts(own, evaluations)),
        _graph("Milliseconds from tensor to verdict", of_rules(VERDICT_LATENCY, "p90")),
        _graph("Steps evaluated", of_rules(STEPS_EVALUATED, "Sum")),
        _graph("Requests to AWS", of_rules(REQUESTS, "Sum")),
        _graph(
            "Age of the oldest event, seconds",
            [_called(name, age_of_oldest(found.queue)) for name, found in evaluations.items()],
        ),
        _graph(
            "Dead letters",
            [_called(name, messages_in(found.dead_letters)) for name, found in evaluations.items()],
        ),
    ]


def _of_functions(
    own: OwnMetrics,
    evaluations: Mapping[str, RuleEvaluation],
    others: Mapping[str, lambda_.IFunction],
) -> list[cloudwatch.GraphWidget]:
    every: list[tuple[str, lambda_.IFunction]] = [
        (rule, found.evaluator.function) for rule, found in evaluations.items()
    ]
    every += others.items()  # a rule may have the name of a function
    return [
        _graph("Errors", [_called(name, errors(function)) for name, function in every]),
        _graph("Throttles", [_called(name, throttles(function)) for name, function in every]),
        _graph("Stops", [own.of_stop_job(stop, "Sum") for stop in STOPS]),
    ]


def _verdicts(
    own: OwnMetrics, evaluations: Mapping[str, RuleEvaluation]
) -> Sequence[cloudwatch.IMetric]:
    """Return the number of verdicts per status, over all rules."""
    counts = []
    for status in COUNTED_STATUSES:
        using = {
            f"{status.lower()}{number}": own.of_evaluator(rule, f"{VERDICTS}{status}", "Sum")
            for number, rule in enumerate(evaluations)
        }
        filled = ", ".join(f"FILL({name}, 0)" for name in using)
        counts.append(
            cloudwatch.MathExpression(
                expression=f"SUM([{filled}])", label=status, using_metrics=using
            )
        )
    return counts


def _called(name: str, metric: cloudwatch.Metric) -> cloudwatch.IMetric:
    return metric.with_(label=name)


def _graph(title: str, metrics: Sequence[cloudwatch.IMetric]) -> cloudwatch.GraphWidget:
    return cloudwatch.GraphWidget(title=title, left=list(metrics), width=WIDTH, height=HEIGHT)
