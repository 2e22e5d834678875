"""Structured logs and embedded metrics, the same for all functions.

Logs are JSON lines with the rule and, while a job is evaluated, its name and run. Metrics use the
same lines (CloudWatch embedded metric format). There is no tracer, because importing its SDK would
take longer than a warm evaluation.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from aws_lambda_powertools.logging import Logger
from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit

from lambdas.contracts.environment import ESTIMATES_COST, METRICS_NAMESPACE
from lambdas.contracts.metrics import DEFAULT_NAMESPACE, ESTIMATED_COST, EVERY_FUNCTION
from lambdas.shared import clients
from lambdas.shared.cost_estimate import call_dollars, requests_dollars

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Telemetry"]

_REQUESTS: Final = "Requests"
"""Requests to AWS, including retries. Sent only with other metrics, because each metric costs."""


class Telemetry:
    """The logger and the metrics of one function.

    Args:
        function: Name of the function, which is `service` in its lines and metrics.
        **keys: Keys of every line and dimensions of every metric, such as the rule.
    """

    def __init__(self, function: str, **keys: str) -> None:
        self._logger = Logger(service=function)
        self._logger.append_keys(**keys)
        # The default class shares metrics between all instances in a process.
        namespace = os.environ.get(METRICS_NAMESPACE) or DEFAULT_NAMESPACE
        self._metrics = EphemeralMetrics(namespace=namespace, service=function)
        self._cost = EphemeralMetrics(namespace=namespace, service=EVERY_FUNCTION)
        self._estimates_cost = os.environ.get(ESTIMATES_COST) == "true"
        self._keys = keys
        self._recorded = False

    @contextmanager
    def invocation(self, context: object, num_messages: int = 0) -> Iterator[None]:
        """Mark one invocation: its id is on every line, and its metrics are sent at its end.

        Args:
            context: Lambda's context; None and other objects are accepted, for manual calls.
            num_messages: Messages of a queue that caused it.
        """
        self._logger.append_keys(function_request_id=getattr(context, "aws_request_id", None))
        requests_before = clients.requests()
        began = time.perf_counter()
        try:
            yield
        finally:
            requests = clients.requests() - requests_before
            if self._recorded:
                self.count(_REQUESTS, requests.total())
                for name, value in self._keys.items():
                    self._metrics.add_dimension(name=name, value=value)
                self._metrics.flush_metrics()
                self._recorded = False
            if self._estimates_cost:
                spent = call_dollars(time.perf_counter() - began, num_messages)
                spent += requests_dollars(requests)
                self._cost.add_metric(name=ESTIMATED_COST, unit=MetricUnit.NoUnit, value=spent)
                self._cost.flush_metrics()

    @contextmanager
    def job(self, name: str, run: str | None = None) -> Iterator[None]:
        """Add job and run to the lines written inside."""
        with self._logger.append_context_keys(training_job_name=name, run_id=run):
            yield

    def count(self, metric: str, value: float = 1) -> None:
        """Add to a counted metric."""
        self._metrics.add_metric(name=metric, unit=MetricUnit.Count, value=value)
        self._recorded = True

    def milliseconds(self, metric: str, value: float) -> None:
        """Record a duration in milliseconds."""
        self._metrics.add_metric(name=metric, unit=MetricUnit.Milliseconds, value=value)
        self._recorded = True

    def seconds(self, metric: str, value: float) -> None:
        """Record a duration in seconds."""
        self._metrics.add_metric(name=metric, unit=MetricUnit.Seconds, value=value)
        self._recorded = True

    def info(self, message: str, **extra: Any) -> None:
        """Log an event, with details as keys."""
        self._logger.info(message, extra=extra, stacklevel=3)

    def warning(self, message: str, **extra: Any) -> None:
        """Log a condition that a person may have to check."""
        self._logger.warning(message, extra=extra, stacklevel=3)

    def error(self, message: str, *, exception: BaseException | None = None, **extra: Any) -> None:
        """Log an error."""
        self._logger.error(message, extra=extra, exc_info=exception, stacklevel=3)
