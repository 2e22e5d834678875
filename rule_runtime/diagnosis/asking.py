"""Questions to AWS whose refusal is an answer, too."""

from __future__ import annotations

from typing import Any

from rule_runtime.jobs.aws import Aws, AwsRequestError

__all__ = ["asked"]


def asked(
    aws: Aws, service: str, operation: str, **arguments: Any
) -> tuple[Any, AwsRequestError | None]:
    """Return the answer of a service, or None and what was wrong.

    Args:
        aws: The account.
        service: Name of the service, e.g. `sns`.
        operation: Name of the client's method.
        **arguments: Members of the request.
    """
    try:
        return aws.call(service, operation, **arguments), None
    except AwsRequestError as error:
        return None, error
