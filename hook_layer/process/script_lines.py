"""Finds lines of the training script: where its layers, losses and optimizers are."""

from __future__ import annotations

import os
import sys
import sysconfig
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

__all__ = ["ScriptLines", "script_line"]

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


class ScriptLines:
    """Lines of the script at which something happened to objects, which are referenced weakly.

    Objects that cannot be hashed have none.
    """

    def __init__(self) -> None:
        self._lines: WeakKeyDictionary[Any, str] = WeakKeyDictionary()

    def remember(self, of: Any, *, is_latest: bool = False) -> None:
        """Remember the present line for an object; without `is_latest`, an earlier one stays."""
        with suppress(TypeError):
            if is_latest or of not in self._lines:
                self._lines[of] = script_line()

    def line_of(self, of: Any) -> str:
        """Return file and line of an object; "" if unknown."""
        with suppress(TypeError):
            return self._lines.get(of, "")
        return ""


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
