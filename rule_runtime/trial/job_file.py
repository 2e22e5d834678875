"""Reads `job.json`: the name of a run and its configured rules."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from hook_layer.format.errors import JobFileError
from hook_layer.format.job_file import MAX_JOB_FILE_BYTES, JobFile, parse_job_file
from hook_layer.format.paths import JOB_FILE
from hook_layer.storage.base import ObjectNotFoundError, read_small

if TYPE_CHECKING:
    from hook_layer.storage.base import Store

__all__ = ["read_job_file", "usable_job_file"]

_logger: Final = logging.getLogger("stepwatch")


@lru_cache(maxsize=64)
def _warn_once(problem: str) -> None:
    _logger.warning("%s", problem)  # watchers reread the file often


def read_job_file(store: Store) -> JobFile | None:
    """Return a trial's `job.json`; None if it has none, as with the original client.

    Raises:
        JobFileError: The file is damaged.
        StorageError: The file cannot be read.
    """
    try:
        return read_small(store, JOB_FILE, MAX_JOB_FILE_BYTES, parse_job_file)
    except ObjectNotFoundError:
        return None


def usable_job_file(store: Store, report: Callable[[str], None] = _warn_once) -> JobFile | None:
    """Return a trial's `job.json`; a damaged file is reported and counts as missing.

    Args:
        store: The trial's root.
        report: Called with the problem of a damaged file; by default, logs it once.
    """
    try:
        return read_job_file(store)
    except JobFileError as error:
        report(str(error))
        return None
