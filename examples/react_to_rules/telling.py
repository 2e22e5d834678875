"""Printing from several threads: training, subscriber and owner all tell what they see."""

from __future__ import annotations

import sys

__all__ = ["tell"]


def tell(line: str) -> None:
    """Print a line as a whole; `print` writes its end by itself, and others come between."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
