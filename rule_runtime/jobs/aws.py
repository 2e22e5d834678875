"""Makes requests to AWS in one boto3 session; the only module here that imports boto3."""

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
"""A boto3 session; boto3 may be missing."""

_S3: Final = "s3://"
_REGION_HEADER: Final = "x-amz-bucket-region"
_FORBIDDEN: Final = frozenset(
    ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "403", "Forbidden")
)


class AwsRequestError(OSError):
    """AWS refused a request, or could not be reached.

    Attributes:
        code: Error code; the kind of failure if AWS was not reached.
        headers: Headers of the response.
    """

    def __init__(self, message: str, code: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.headers = headers or {}

    @property
    def is_forbidden(self) -> bool:
        """Return whether the permission for the request is missing."""
        return self.code in _FORBIDDEN


class Aws:
    """An AWS account, with clients that are created on demand.

    Args:
        session: A boto3 session; None for the credentials and Region of the environment.
    """

    def __init__(self, session: Session | None = None) -> None:
        self._made = session
        self._clients: dict[str, Any] = {}

    @property
    def region(self) -> str | None:
        """Region of the session; None if it has none."""
        region: str | None = self._session().region_name
        return region

    @property
    def has_credentials(self) -> bool:
        """Whether the session has or finds credentials."""
        return self._session().get_credentials() is not None

    @property
    def session(self) -> Session | None:
        """The session; None before the first request."""
        return self._made

    def call(self, service: str, operation: str, /, **arguments: Any) -> Any:
        """Make a request.

        Args:
            service: Name of the service, e.g. `sagemaker`.
            operation: Name of the client's method.
            **arguments: Parameters of the request.

        Raises:
            AwsRequestError: AWS refused the request, or could not be reached.
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
        """Return the store at a path or URI; uses the session's permissions for S3."""
        if not uri.startswith(_S3):
            return open_store(uri)
        from hook_layer.storage.s3 import S3Store  # noqa: PLC0415 - needs boto3

        return S3Store(uri, client=self.client("s3"))

    def region_of_bucket(self, bucket: str) -> str | None:
        """Return the Region of a bucket; None if unknown.

        S3 returns it even without permissions on the bucket.
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

            # Platforms set the Region in a variable that boto3 does not read.
            self._made = boto3.Session(region_name=os.environ.get("AWS_REGION") or None)
        return self._made


def _require_boto3() -> None:
    require_extra("aws", "AWS", "boto3")
