"""The command `stepwatch`; needs the extra `cli`."""

from __future__ import annotations

import sys
from typing import Final

__all__ = ["FAILED", "main"]

FAILED: Final = 70
"""Exit status of an error that nobody foresaw, the `EX_SOFTWARE` of sysexits.h."""
_MISTAKE: Final = 2


def main() -> None:
    """Run the command line; say which extra is missing if it is not installed."""
    try:
        from rule_runtime.cli.app import app  # noqa: PLC0415 - only the command needs typer
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.stderr.write("stepwatch needs the extra cli: pip install 'stepwatch[cli]'\n")
        sys.exit(_MISTAKE)
    try:
        app()
    except Exception:  # noqa: BLE001 - Python's own status for it is that of an issue
        import traceback  # noqa: PLC0415 - mostly not needed

        traceback.print_exc()
        sys.stderr.write("stepwatch: this is an error of Stepwatch; please report it\n")
        sys.exit(FAILED)
