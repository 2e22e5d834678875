"""Output destination of a command: standard output or a file."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from enum import Enum
from pathlib import Path

from rule_runtime.cli.options import OutputFormat

__all__ = ["printed_aside", "ready_file"]


def printed_aside(output: Enum) -> AbstractContextManager[object]:
    """Return a context that keeps prints out of machine-readable output.

    Rules in a user's file may print while they are loaded or evaluated: that goes to standard
    error.
    """
    is_table = output.value == OutputFormat.TABLE.value
    return nullcontext() if is_table else redirect_stdout(sys.stderr)


def ready_file(file: Path | None) -> None:
    """Create the folder of an output file before slow work begins.

    Raises:
        OSError: It cannot be created.
        ValueError: The file is a folder.
    """
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.is_dir():
            raise ValueError(f"{file} is a folder; give the name of a file")
