"""Finds lines of the training script: where its layers, losses and optimizers are."""

from __future__ import annotations

import os
import sys
import sysconfig
from functools import lru_cache
from pathlib import Path
from typing import Final

__all__ = ["script_line"]

_OURS: Final = str(Path(__file__).parents[1])
_LIBRARIES: Final = (*(sysconfig.get_paths()[kind] for kind in ("stdlib", "platstdlib")), _OURS)
_PACKAGES: Final = ("site-packages", "dist-packages")


def script_line() -> str:
    """Return the file and line of the innermost call in code of the script; "" if there is none.

    Code of installed packages, of the standard library and of notebooks does not count.
    """
    frame = sys._getframe(1)  # noqa: SLF001 - no public way
    while not (file := _script_file(frame.f_code.co_filename)):
        if frame.f_back is None:
            return ""
        frame = frame.f_back
    return f"{file}:{frame.f_lineno}"


@lru_cache(maxsize=1024)
def _script_file(filename: str) -> str:
    """Return a file of the script, relative to the working directory if it lies in it; else ""."""
    is_code = not filename.startswith("<") and "ipykernel_" not in filename
    if not is_code or filename.startswith(_LIBRARIES) or any(map(filename.count, _PACKAGES)):
        return ""
    try:
        within = os.path.relpath(filename)
    except (OSError, ValueError):  # the working directory is gone, or on another drive
        return filename
    return os.path.abspath(filename) if within.startswith(os.pardir) else within  # noqa: PTH100
