"""Manages the folder of reproducible build results, and its reusable subfolders.

A subfolder's name contains the digest of its content, so each change of a source leaves old
subfolders. The newest are kept, older ones are removed.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

__all__ = ["BUILD", "publish", "reuse"]

BUILD = Path(__file__).resolve().parent.parent / ".build"

KEPT = 8
"""Number of folders of one kind to keep."""
SAFE_AGE_S = 3600
"""Another process may be using a folder that was used within this time, seconds."""


def reuse(folder: Path) -> bool:
    """Return whether a folder exists; if so, mark it as used now."""
    try:
        os.utime(folder)
    except FileNotFoundError:
        return False
    return True


def publish(made: Path, folder: Path) -> None:
    """Rename a finished folder to its final name, and remove old folders beside it.

    Of several concurrent writers of one folder, the first wins.
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
    """Remove folders of one kind (with the same name prefix) that were not used for long."""
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
