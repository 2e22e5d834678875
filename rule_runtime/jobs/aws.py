"""Requests to AWS, of one session; the only place here that knows boto3."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from hook_layer.storage.base import open_store
from rule_runtime.optional_extra import require_extra

if TYPE_CHECKING:
    from collections.abc import Mapping

    import boto3

    from hook_layer.storage.base import Store

__all__ = ["Aws", "AwsRequestError", "Session"]

Session: TypeAlias = "boto3.Session"
"""A session of boto3, which need not be installed."""

_S3: Final = "s3://"
_REGION_HEADER: Final = "x-amz-bucket-region"
_FORBIDDEN: Final = frozenset(
    ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "403", "Forbidden")
)


class AwsRequestError(OSError):
    """A request that AWS refused, or that could not be made.

    Attributes:
        code: Code of the error; the kind of failure where AWS was not reached.
        headers: Headers of the answer.
    """

    def __init__(self, message: str, code: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.headers = headers or {}

    @property
    def is_forbidden(self) -> bool:
        """Return whether the right to make the request is missing."""
        return self.code in _FORBIDDEN


class Aws:
    """What can be asked of an AWS account, with clients that are made when first needed.

    Args:
        session: A boto3 session; None for the credentials and the Region of this environment.
    """

    def __init__(self, session: Session | None = None) -> None:
        self._made = session
        self._clients: dict[str, Any] = {}

    @property
    def region(self) -> str | None:
        """Region of the session; None if nothing says one."""
        region: str | None = self._session().region_name
        return region

    @property
    def has_credentials(self) -> bool:
        """Whether the session has credentials, or finds some."""
        return self._session().get_credentials() is not None

    @property
    def session(self) -> Session | None:
        """The session; None while nothing was asked."""
        return self._made

    def call(self, service: str, operation: str, /, **arguments: Any) -> Any:
        """Make a request.

        Args:
            service: Name of the service, e.g. `sagemaker`.
            operation: Name of the client's method.
            **arguments: Members of the request.

        Raises:
            AwsRequestError: It was refused, or could not be made.
        """
        _require_boto3()
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - jobs in folders need none

        try:
            return getattr(self.client(service), operation)(**arguments)
        except ClientError as error:
            answer = error.response
            headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
            code = answer.get("Error", {}).get("Code", "")
            raise AwsRequestError(str(error), code, headers) from error
        except BotoCoreError as error:
            raise AwsRequestError(str(error), type(error).__name__) from error

    def client(self, service: str) -> Any:
        """Return the client of a service."""
        if service not in self._clients:
            self._clients[service] = self._session().client(service)  # type: ignore[call-overload]
        return self._clients[service]

    def open_store(self, uri: str) -> Store:
        """Return the store at a path or URI, in S3 with the rights of the session."""
        if not uri.startswith(_S3):
            return open_store(uri)
        from hook_layer.storage.s3 import S3Store  # noqa: PLC0415 - needs boto3

        return S3Store(uri, client=self.client("s3"))

    def region_of_bucket(self, bucket: str) -> str | None:
        """Return the Region of a bucket; None if unknown.

        S3 returns it even without rights on the bucket.
        """
        try:
            answer = self.call("s3", "head_bucket", Bucket=bucket)
        except AwsRequestError as error:
            return error.headers.get(_REGION_HEADER)
        headers: Mapping[str, str] = answer["ResponseMetadata"]["HTTPHeaders"]
        return headers.get(_REGION_HEADER)

    def _session(self) -> Session:
        if self._made is None:
            _require_boto3()
            import boto3  # noqa: PLC0415 - jobs in folders need none

            # boto3 does not read the variable in which platforms say the Region.
            self._made = boto3.Session(region_name=os.environ.get("AWS_REGION") or None)
        return self._made


def _require_boto3() -> None:
    require_extra("aws", "AWS", "boto3")
