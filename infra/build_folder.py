"""The folder of everything that can be made again, and the folders in it that others reuse.

A folder's name carries the digest of what it holds, so each change of a source leaves the folders
before it behind. The newest stay, older ones go.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

__all__ = ["BUILD", "publish", "reuse"]

BUILD = Path(__file__).resolve().parent.parent / ".build"

KEPT = 8
"""Folders of one kind that are kept."""
SAFE_AGE_S = 3600
"""A folder that was used within the last hour may be in use by another process."""


def reuse(folder: Path) -> bool:
    """Return whether a folder was made before; if so, it counts as used now."""
    try:
        os.utime(folder)
    except FileNotFoundError:
        return False
    return True


def publish(made: Path, folder: Path) -> None:
    """Rename a finished folder to its final name, and remove old folders beside it.

    Of several writers of one folder the first wins.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    made.chmod(0o755)
    try:
        made.rename(folder)
    except OSError:
        if not folder.exists():
            raise
    reuse(folder)
    _remove_old(folder.parent, folder.name.rpartition("-")[0])


def _remove_old(parent: Path, kind: str) -> None:
    """Remove folders of one kind, whose names begin alike, which nobody used for long."""
    ages = {}
    for path in parent.iterdir():
        if path.is_dir() and path.name.rpartition("-")[0] == kind:
            try:
                ages[path] = time.time() - path.stat().st_mtime
            except FileNotFoundError:  # another process removes it
                continue
    for path in sorted(ages, key=lambda path: ages[path])[KEPT:]:
        if ages[path] > SAFE_AGE_S:
            shutil.rmtree(path, ignore_errors=True)
