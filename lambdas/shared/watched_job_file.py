"""Reads the `job.json` of a registered job, for functions that act on its requests."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from hook_layer.storage.base import StoreRefusedError
from rule_runtime.trial.job_file import usable_job_file

if TYPE_CHECKING:
    from hook_layer.format.job_file import JobFile
    from hook_layer.storage.base import Store
    from lambdas.shared.observability import Telemetry

__all__ = ["bucket_of", "watched_job_file"]


def bucket_of(root_uri: str) -> str:
    """Return the bucket of a trial's root."""
    return root_uri.removeprefix("s3://").partition("/")[0]


def watched_job_file(
    root_uri: str,
    bucket_names: Collection[str],
    open_store: Callable[[str], Store],
    telemetry: Telemetry,
) -> JobFile | None:
    """Return a registered job's `job.json`; None if it is missing or invalid.

    Args:
        root_uri: The trial's root.
        bucket_names: Watched buckets; other buckets are not read.
        open_store: Returns the store at a root.
        telemetry: Logs why a file is invalid.

    Raises:
        StorageError: It is temporarily unreadable.
    """

    def tell(problem: str) -> None:
        telemetry.warning("job.json cannot be used", problem=problem)

    if bucket_of(root_uri) not in bucket_names:
        return None
    try:
        return usable_job_file(open_store(root_uri), tell)
    except StoreRefusedError as error:
        tell(str(error))  # retrying does not help
        return None
