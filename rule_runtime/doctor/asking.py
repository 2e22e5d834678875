"""Makes requests to AWS that may be refused."""

from __future__ import annotations

from typing import Any

from rule_runtime.jobs.aws import Aws, AwsRequestError

__all__ = ["asked"]


def asked(
    aws: Aws, service: str, operation: str, **arguments: Any
) -> tuple[Any, AwsRequestError | None]:
    """Return the response of a service, or None and the error.

    Args:
        aws: The account.
        service: Name of the service, e.g. `sns`.
        operation: Name of the client's method.
        **arguments: Parameters of the request.
    """
    try:
        return aws.call(service, operation, **arguments), None
    except AwsRequestError as error:
        return None, error
