"""A store under a prefix of an S3 bucket."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from hook_layer.install_hint import install_hint
from hook_layer.storage.base import (
    Buffers,
    ObjectNotFoundError,
    StorageError,
    check_key,
    checked_range,
)
from hook_layer.storage.s3_errors import refusal, refusal_without_answer

try:
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError
except ImportError as error:
    raise ImportError(f"S3 needs boto3: {install_hint('aws')}") from error

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

__all__ = ["S3Store"]

_URI = re.compile(r"s3://(?P<bucket>[A-Za-z0-9.\-_]{3,255})(?:/(?P<prefix>.*))?")
_MAX_PREFIX_BYTES = 900
"""Leaves room for the names of files in a key, of at most 1,024 bytes."""
_CONNECT_TIMEOUT_S = 5
_READ_TIMEOUT_S = 10
_MAX_ATTEMPTS = 5
_MIN_PARTS_BYTES = 256 << 20
"""Size from which objects are uploaded in parts. One request is limited to 5 GiB, and is repeated
as a whole after a failure.
"""
_PART_BYTES = 64 << 20
_NOT_FOUND = ("404", "NoSuchKey", "NotFound")
_EXISTS = ("PreconditionFailed", "ConditionalRequestConflict")
"""Another request has stored the object, or is about to."""
_RANGE_NOT_SATISFIABLE = "InvalidRange"


class S3Store:
    """A store under a prefix of an existing bucket.

    Args:
        uri: `s3://bucket/prefix`.
        client: A boto3 S3 client; None creates one with standard retries.

    Raises:
        ValueError: `uri` is not an S3 URI, or the settings of this machine allow no client.
    """

    def __init__(self, uri: str, client: S3Client | None = None) -> None:
        match = _URI.fullmatch(uri)
        if match is None:
            bucket = uri.removeprefix("s3://").partition("/")[0]
            raise ValueError(
                f"{uri!r} has the bucket {bucket!r}, but the name of a bucket has 3 to 63 letters, "
                "digits, dots and hyphens: give s3://bucket/prefix"
                if uri.startswith("s3://")
                else f"{uri!r} is not an S3 URI; give s3://bucket/prefix"
            )
        self.bucket = match["bucket"]
        parts = [part for part in (match["prefix"] or "").split("/") if part]
        self.prefix = "".join(f"{part}/" for part in parts)
        self.uri = f"s3://{self.bucket}/{self.prefix}"
        if self.prefix and not _is_plain(self.prefix):
            raise ValueError(
                f"{uri[:120]!r} has a prefix that no deployment evaluates: give at most "
                f"{_MAX_PREFIX_BYTES} bytes without '.', '..', backslash and control characters"
            )
        try:
            self._client = client or _default_client()
        except BotoCoreError as failure:  # such as a profile that does not exist
            raise ValueError(f"{uri!r} cannot be opened: {failure}") from failure

    def put(self, key: str, data: Buffers) -> None:
        """Store an object whole, with one request, or in parts if it is large."""
        body: Any = data if isinstance(data, bytes) else _BuffersReader(data)
        name = self._key(key)
        with self._reported(key):
            if len(body) < _MIN_PARTS_BYTES:
                self._client.put_object(Bucket=self.bucket, Key=name, Body=body)
            else:
                self._put_in_parts(name, io.BytesIO(body) if isinstance(body, bytes) else body)

    def create(self, key: str, data: bytes) -> bool:
        """Store an object unless the key exists; return whether it was stored."""
        with self._reported(key):
            try:
                self._client.put_object(
                    Bucket=self.bucket, Key=self._key(key), Body=data, IfNoneMatch="*"
                )
            except ClientError as failure:
                if failure.response["Error"]["Code"] in _EXISTS:
                    return False
                raise
        return True

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """Return at most `length` of the object's bytes, from `start`, with one request."""
        name = self._key(key)
        checked_range(start, length)
        if length == 0:
            return b""
        arguments: dict[str, Any] = {}
        if start or length is not None:
            last = "" if length is None else str(start + length - 1)
            arguments["Range"] = f"bytes={start}-{last}"
        with self._reported(key):
            try:
                answer = self._client.get_object(Bucket=self.bucket, Key=name, **arguments)
            except ClientError as failure:
                if failure.response["Error"]["Code"] == _RANGE_NOT_SATISFIABLE:
                    return b""
                raise
            return answer["Body"].read()

    def list(self, prefix: str = "", after: str | None = None) -> Iterator[str]:
        """Yield the keys that begin with `prefix` and sort after `after`, in byte order."""
        arguments = {"Bucket": self.bucket, "Prefix": self.prefix + prefix}
        if after is not None:
            arguments["StartAfter"] = self.prefix + after
        with self._reported(prefix):
            pages = self._client.get_paginator("list_objects_v2").paginate(**arguments)  # type: ignore[arg-type]
            for page in pages:
                for entry in page.get("Contents", ()):
                    yield entry["Key"][len(self.prefix) :]

    def exists(self, key: str) -> bool:
        """Return whether an object has this key."""
        try:
            self.size(key)
        except ObjectNotFoundError:
            return False
        return True

    def size(self, key: str) -> int:
        """Return the object's size in bytes."""
        with self._reported(key):
            answer = self._client.head_object(Bucket=self.bucket, Key=self._key(key))
            return answer["ContentLength"]

    def delete(self, key: str) -> None:
        """Remove the object, if it exists."""
        with self._reported(key):
            self._client.delete_object(Bucket=self.bucket, Key=self._key(key))

    def _put_in_parts(self, name: str, file: Any) -> None:
        # A slow import that only large objects need.
        from boto3.s3.transfer import TransferConfig  # noqa: PLC0415

        config = TransferConfig(
            multipart_threshold=_MIN_PARTS_BYTES,
            multipart_chunksize=min(_PART_BYTES, _MIN_PARTS_BYTES),
            use_threads=False,  # the interpreter may be shutting down
        )
        self._client.upload_fileobj(file, self.bucket, name, Config=config)

    def _key(self, key: str) -> str:
        return self.prefix + check_key(key)

    @contextlib.contextmanager
    def _reported(self, key: str) -> Iterator[None]:
        try:
            yield
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code in _NOT_FOUND:
                raise ObjectNotFoundError(f"{self.uri}{key} does not exist") from error
            refused = refusal(f"{self.uri}{key}", code, error.operation_name, str(error))
            raise refused or StorageError(f"{self.uri}{key}: {error}") from error
        except BotoCoreError as error:
            refused = refusal_without_answer(f"{self.uri}{key}", type(error).__name__, str(error))
            raise refused or StorageError(f"{self.uri}{key}: {error}") from error


def _is_plain(prefix: str) -> bool:
    """Return whether a prefix, ending in "/", can be the beginning of every key."""
    try:
        check_key(prefix[:-1])
    except ValueError:
        return False
    return len(prefix.encode()) <= _MAX_PREFIX_BYTES


def _default_client() -> S3Client:
    # A slow import, unnecessary for callers with a client, such as the Lambda functions.
    import boto3  # noqa: PLC0415

    # Fail fast if the store does not respond: data that it does not accept waits on local disk.
    config = Config(
        connect_timeout=_CONNECT_TIMEOUT_S,
        read_timeout=_READ_TIMEOUT_S,
        retries={"mode": "standard", "total_max_attempts": _MAX_ATTEMPTS},
        tcp_keepalive=True,
    )
    # SageMaker and the original client use a region variable that boto3 ignores. boto3's shared
    # session would keep the credentials of its first user.
    session = boto3.Session(region_name=os.environ.get("AWS_REGION") or None)
    return session.client("s3", config=config)


class _BuffersReader(io.RawIOBase):
    """A seekable file over several buffers, to send them without joining."""

    def __init__(self, buffers: Iterable[bytes | memoryview]) -> None:
        self._views = [memoryview(buffer).cast("B") for buffer in buffers]
        self._ends = list(itertools.accumulate(len(view) for view in self._views))
        self._length = self._ends[-1] if self._ends else 0
        self._position = 0

    def __len__(self) -> int:
        return self._length

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._length}[whence]
        self._position = min(max(base + offset, 0), self._length)
        return self._position

    def readinto(self, target: Any) -> int:
        room = memoryview(target).cast("B")
        written = 0
        while written < len(room) and self._position < self._length:
            at = bisect_right(self._ends, self._position)
            view = self._views[at][self._position - self._ends[at] :]
            piece = view[: len(room) - written]
            room[written : written + len(piece)] = piece
            written += len(piece)
            self._position += len(piece)
        return written
