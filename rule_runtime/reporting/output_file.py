"""Splits the path of a report into folder and name, and protects files that are no report."""

from __future__ import annotations

import os
from typing import Final

from hook_layer.storage.base import ObjectNotFoundError, open_store

__all__ = ["check_replaceable", "folder_and_name"]

_PAGE_MARK: Final = b'<meta name="generator" content="Stepwatch">'
"""In the head of each page, from `templates/page.html.j2`."""
_NUMBERS_MARK: Final = b'{\n "schema_version": '
"""Beginning of a report's numbers, from `JobNumbers.to_json`."""
_HEAD_BYTES: Final = 1024
"""The marks are within the first bytes of a report."""


def folder_and_name(path: str | os.PathLike[str]) -> tuple[str, str]:
    """Return the folder or URI of a file, and its name.

    Raises:
        ValueError: The path names no file.
    """
    text = os.fspath(path)
    folder, slash, name = text.rpartition("/")
    if not name:
        raise ValueError(f"{text!r} names no file: give one such as report.html")
    return folder or (slash or "."), name


def check_replaceable(path: str | os.PathLike[str]) -> None:
    """Check that a report may be written: the file is missing, empty or a report.

    Raises:
        ValueError: The file is something else, or the path names no file.
        StorageError: The file cannot be read.
    """
    folder, name = folder_and_name(path)
    try:
        head = open_store(folder).get(name, 0, _HEAD_BYTES)
    except ObjectNotFoundError:
        return
    if head and _PAGE_MARK not in head and not head.startswith(_NUMBERS_MARK):
        raise ValueError(
            f"{os.fspath(path)} exists and is no report of Stepwatch; give another name, or "
            "replace it with --overwrite (in Python: overwrite=True)"
        )
