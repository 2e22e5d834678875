"""Reads the request to stop a run, stored beside its tensors."""

from __future__ import annotations

import logging
from typing import Final

from hook_layer.format.errors import FormatError
from hook_layer.format.job_file import MAX_JOB_FILE_BYTES, StopFile, parse_stop_file
from hook_layer.format.paths import STOP_FILE
from hook_layer.storage.base import ObjectNotFoundError, Store, read_small

__all__ = ["read_stop_request"]

_logger: Final = logging.getLogger(__name__)


def read_stop_request(store: Store, run: str | None) -> StopFile | None:
    """Return the request to stop a run; None if there is none.

    Args:
        store: The trial's root.
        run: RunId of the run; requests for other runs do not count.
    """
    try:
        request = read_small(store, STOP_FILE, MAX_JOB_FILE_BYTES, parse_stop_file)
    except ObjectNotFoundError:
        return None
    except FormatError as error:
        _logger.warning("ignored a request to stop: %s", error)
        return None
    return request if request.run_id in (None, run) else None
