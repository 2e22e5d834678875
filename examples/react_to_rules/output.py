"""Prints lines from several threads: training, subscriber and owner."""

from __future__ import annotations

import sys

__all__ = ["print_line"]


def print_line(line: str) -> None:
    """Print a line in one write; `print` writes its end separately, so threads mix lines."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
