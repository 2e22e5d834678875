"""Locates the files of a job from its name and output path."""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Final

from hook_layer.configuration.places import job_root

__all__ = [
    "CONFIGURATION_FILE",
    "JobPaths",
    "absolute_output_path",
    "bucket_of",
    "checked_job_name",
    "is_in_s3",
    "tensorboard_root",
    "unique_job_name",
]

CONFIGURATION_FILE: Final = "stepwatch.json"
"""Name of the hook's configuration in the job's folder."""

_DEBUG_LEAF: Final = "debug-output"
_TENSORBOARD_LEAF: Final = "tensorboard-output"
_S3: Final = "s3://"
_BUCKET: Final = re.compile(r"s3://(?P<bucket>[^/]+)(/.*)?")
_JOB_NAME: Final = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")
_MAX_JOB_NAME: Final = 63
_RANDOM_BYTES: Final = 3


@dataclass(frozen=True)
class JobPaths:
    """The paths of one job.

    Attributes:
        folder: The job's folder, ending in "/".
        root: The trial's root with the tensors, ending in "/".
    """

    folder: str
    root: str

    @classmethod
    def of(cls, output_path: str, job_name: str) -> JobPaths:
        """Return the paths of a job below an output path.

        Args:
            output_path: A folder or URI, as for hooks. The missing part of
                `/{job_name}/debug-output/` is appended.
            job_name: Name of the job.

        Raises:
            ValueError: The path is invalid.
        """
        root = job_root(absolute_output_path(output_path), job_name, _DEBUG_LEAF) or ""
        return cls(root.removesuffix(f"{_DEBUG_LEAF}/"), root)

    @property
    def configuration(self) -> str:
        """Path of the hook's configuration."""
        return self.folder + CONFIGURATION_FILE

    @property
    def parent(self) -> str:
        """The folder that holds the job's folder, ending in "/"."""
        return self.folder.rstrip("/").rpartition("/")[0] + "/"


def tensorboard_root(output_path: str, job_name: str) -> str:
    """Return the path of a job's TensorBoard files, ending in "/".

    Args:
        output_path: As `S3OutputPath` of `TensorBoardOutputConfig`.
        job_name: Name of the job.
    """
    return job_root(absolute_output_path(output_path), job_name, _TENSORBOARD_LEAF) or ""


def absolute_output_path(output_path: str | os.PathLike[str]) -> str:
    """Return an output path for configurations: a URI or an absolute path.

    Raises:
        ValueError: It is empty, a misspelled URI, or its scheme has no store.
    """
    text = os.fspath(output_path).strip()
    if not text:
        raise ValueError(
            "output_path is empty: give a folder, or an S3 URI like s3://bucket/output"
        )
    scheme, found, rest = text.partition("://")
    if not found:
        if re.match(r"(s3|file):", text):
            raise ValueError(f"output_path is {text!r}: did you mean s3://bucket/prefix?")
        return os.path.abspath(os.path.expanduser(text))  # noqa: PTH100, PTH111 - a text, as configurations have it
    if scheme not in ("s3", "file", "memory") or not rest.strip("/"):
        raise ValueError(
            f"output_path is {text!r}, but must be a folder, or a URI like s3://bucket/output"
        )
    return text


def is_in_s3(path: str) -> bool:
    """Return whether a path is in S3."""
    return path.startswith(_S3)


def bucket_of(uri: str) -> str:
    """Return the bucket of an S3 URI."""
    found = _BUCKET.fullmatch(uri)
    return found["bucket"] if found else ""


def checked_job_name(name: str, field: str = "job_name") -> str:
    """Return a job name that every platform accepts.

    Args:
        name: The name.
        field: Name of the field in messages.

    Raises:
        ValueError: CreateTrainingJob would refuse it.
    """
    if not isinstance(name, str) or _JOB_NAME.fullmatch(name) is None:
        raise ValueError(
            f"{field} is {name!r}, but must be 1 to {_MAX_JOB_NAME} letters, digits and '-', with "
            "a letter or digit first and last"
        )
    return name


def unique_job_name(base: str, now: float) -> str:
    """Return a unique name: the base, the time, and six random hexadecimal digits.

    Args:
        base: Start of the name; shortened if the name would exceed 63 characters.
        now: Seconds since the epoch.

    Raises:
        ValueError: CreateTrainingJob would refuse the base.
    """
    checked_job_name(base, "base_job_name")
    moment = datetime.fromtimestamp(now, timezone.utc).strftime("%Y%m%d-%H%M%S")
    end = f"-{moment}-{secrets.token_hex(_RANDOM_BYTES)}"
    return base[: _MAX_JOB_NAME - len(end)].rstrip("-") + end
