"""The command `stepwatch`; needs the extra `cli`."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; say which extra is missing if it is not installed."""
    try:
        from rule_runtime.cli.app import app  # noqa: PLC0415 - only the command needs typer
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.exit("stepwatch needs the extra cli: pip install 'stepwatch[cli]'")
    app()
