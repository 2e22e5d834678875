"""The page of a deployment: what its evaluators do, and what is in their way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.constructs.metrics import (
    STEPS_EVALUATED,
    VERDICT_LATENCY,
    VERDICTS,
    age_of_oldest,
    errors,
    messages_in,
    of_evaluator,
    own_metric,
    throttles,
)
from infra.constructs.rule_evaluation import RuleEvaluation

__all__ = ["Dashboard"]

WIDTH, HEIGHT = 12, 6
COUNTED_STATUSES = ("IssuesFound", "NoIssuesFound", "Error")


class Dashboard(Construct):
    """The dashboard.

    Attributes:
        url: Its address in the console.
    """

    def __init__(
        self,
        scope: Construct,
        id_: str,
        *,
        name: str,
        evaluations: Mapping[str, RuleEvaluation],
        functions: Mapping[str, lambda_.IFunction],
    ) -> None:
        """Create the dashboard.

        Args:
            scope: Parent construct.
            id_: Id of this construct.
            name: Name of the dashboard.
            evaluations: The evaluation of each rule, by its name.
            functions: The other functions by name.
        """
        super().__init__(scope, id_)
        page = cloudwatch.Dashboard(self, "Page", dashboard_name=name)
        page.add_widgets(*_of_evaluations(evaluations), *_of_functions(evaluations, functions))
        stack = cdk.Stack.of(self)
        self.url = (
            f"https://{stack.region}.console.aws.amazon.com/cloudwatch/home"
            f"?region={stack.region}#dashboards:name={name}"
        )


def _of_evaluations(evaluations: Mapping[str, RuleEvaluation]) -> list[cloudwatch.GraphWidget]:
    return [
        _graph("Verdicts", _verdicts(evaluations)),
        _graph(
            "Milliseconds from tensor to verdict", _of_rules(VERDICT_LATENCY, "p90", evaluations)
        ),
        _graph("Steps evaluated", _of_rules(STEPS_EVALUATED, "Sum", evaluations)),
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
    evaluations: Mapping[str, RuleEvaluation], others: Mapping[str, lambda_.IFunction]
) -> list[cloudwatch.GraphWidget]:
    every: dict[str, lambda_.IFunction] = {
        rule: found.evaluator.function for rule, found in evaluations.items()
    }
    every |= others
    stops = ("JobsStopped", "StopsRefused", "StopsNotConfirmed")
    return [
        _graph("Errors", [_called(name, errors(function)) for name, function in every.items()]),
        _graph(
            "Throttles", [_called(name, throttles(function)) for name, function in every.items()]
        ),
        _graph("Stops", [own_metric(stop, {"service": "stop_job"}, "Sum") for stop in stops]),
    ]


def _verdicts(evaluations: Mapping[str, RuleEvaluation]) -> Sequence[cloudwatch.IMetric]:
    """Return the number of verdicts of each status, of all rules together."""
    counts = []
    for status in COUNTED_STATUSES:
        using = {
            f"{status.lower()}{number}": own_metric(
                f"{VERDICTS}{status}", of_evaluator(rule), "Sum"
            )
            for number, rule in enumerate(evaluations)
        }
        filled = ", ".join(f"FILL({name}, 0)" for name in using)
        counts.append(
            cloudwatch.MathExpression(
                expression=f"SUM([{filled}])", label=status, using_metrics=using
            )
        )
    return counts


def _of_rules(metric: str, statistic: str, rules: Mapping[str, object]) -> list[cloudwatch.IMetric]:
    return [_called(rule, own_metric(metric, of_evaluator(rule), statistic)) for rule in rules]


def _called(name: str, metric: cloudwatch.Metric) -> cloudwatch.IMetric:
    return metric.with_(label=name)


def _graph(title: str, metrics: Sequence[cloudwatch.IMetric]) -> cloudwatch.GraphWidget:
    return cloudwatch.GraphWidget(title=title, left=list(metrics), width=WIDTH, height=HEIGHT)
