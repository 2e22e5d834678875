"""List prices of AWS in us-east-1. Check them before you rely on a sum: they change."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["READ_ON", "Prices"]

READ_ON = "2026-11"
"""When the prices were written down."""

_MILLION = 1e6


@dataclass(frozen=True)
class Prices:
    """Dollars for one of each; what is free for small accounts is not taken off.

    Attributes:
        s3_write: PUT, COPY, POST and LIST requests, $0.005 a thousand.
        s3_read: GET and HEAD requests, $0.0004 a thousand.
        s3_gb_month: A GB in the standard class for a month, in the first 50 TB.
        event: An event on the default bus: one of our own, or one of a bucket, which the price list
            counts among those that one opts in to. Some guides call these free, so this may be
            too much.
        queue_request: A request of a standard queue, of up to 64 KB; EventBridge's sending is one.
        call: A request of Lambda.
        gb_second_arm64: A GB of a function's memory for a second on arm64.
        gb_second_x86_64: The same on x86_64.
        table_write_unit: A write of up to 1 KB, on demand, as of November 2024.
        table_read_unit: A consistent read of up to 4 KB, likewise.
        table_gb_month: A GB of a table for a month, beyond what is free.
        recovery_gb_month: The same for putting it back to any point in time.
        log_gb: A GB that is written to CloudWatch Logs.
        log_gb_month: A GB that is kept there for a month.
        metric_month: A custom metric for a month, billed by the hour; of the first 10,000.
        alarm_metric_month: A metric that an alarm watches, with a resolution of a minute.
        dashboard_month: A dashboard; one of more than 50 metrics is never free.
        key_month: A key of KMS.
        key_request: A request to it, $0.03 for 10,000.
        rule_hour_small: An hour of `ml.t3.medium` in SageMaker's processing, the smallest instance
            that a custom rule of the original may take.
        rule_hour_usual: The same of `ml.m5.xlarge`.
    """

    s3_write: float = 5.00 / _MILLION
    s3_read: float = 0.40 / _MILLION
    s3_gb_month: float = 0.023
    event: float = 1.00 / _MILLION
    queue_request: float = 0.40 / _MILLION
    call: float = 0.20 / _MILLION
    gb_second_arm64: float = 0.0000133334
    gb_second_x86_64: float = 0.0000166667
    table_write_unit: float = 0.625 / _MILLION
    table_read_unit: float = 0.125 / _MILLION
    table_gb_month: float = 0.25
    recovery_gb_month: float = 0.20
    log_gb: float = 0.50
    log_gb_month: float = 0.03
    metric_month: float = 0.30
    alarm_metric_month: float = 0.10
    dashboard_month: float = 3.00
    key_month: float = 1.00
    key_request: float = 3.00 / _MILLION
    rule_hour_small: float = 0.05
    rule_hour_usual: float = 0.23

    def gb_second(self, architecture: str) -> float:
        """Return the price of a GB of a function's memory for a second.

        Args:
            architecture: `arm64` or `x86_64`.
        """
        return self.gb_second_arm64 if architecture == "arm64" else self.gb_second_x86_64
