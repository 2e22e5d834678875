"""Reports files that earlier, killed runs left on local disk."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator
from itertools import islice
from typing import Final

from hook_layer.delivery.spool_folder import (
    SPOOL_PREFIX,
    SpoolFolder,
    SpoolInUseError,
    SpoolTarget,
    delivery_command,
)

__all__ = ["report_old_spools"]

logger = logging.getLogger("stepwatch")

_MAX_ENTRIES: Final = 10_000
_MAX_FOUND: Final = 10


def report_old_spools(target: SpoolTarget, parent: str | None) -> None:
    """Log undelivered spools of a trial and worker.

    Args:
        target: The trial and worker; the run may differ.
        parent: Folder of the spools; None: the system's folder for temporary files.

    Raises:
        OSError: The folder cannot be read.
    """
    found = list(islice(_waiting(target, parent or tempfile.gettempdir()), _MAX_FOUND))
    if found:
        logger.warning(
            "an earlier run left files for %s on local disk; deliver them with%s",
            target.uri,
            "".join(f"\n    {delivery_command(folder)}" for folder in found),
        )


def _waiting(target: SpoolTarget, parent: str) -> Iterator[str]:
    if not os.path.isdir(parent):  # noqa: PTH112
        return
    with os.scandir(parent) as entries:
        names = [e.path for e in islice(entries, _MAX_ENTRIES) if e.name.startswith(SPOOL_PREFIX)]
    for path in sorted(names):
        try:
            spool = SpoolFolder.open(path)
        except (OSError, ValueError, SpoolInUseError):  # of another user, or in use
            continue
        try:
            is_ours = (spool.target.uri, spool.target.worker) == (target.uri, target.worker)
            is_waiting = is_ours and not spool.is_empty()
        finally:
            spool.release()
        if is_waiting:
            yield path
