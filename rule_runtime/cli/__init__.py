"""The command `stepwatch`; needs the extra `cli`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Final

from hook_layer.install_hint import install_hint

__all__ = ["FAILED", "UNREAD", "main"]

FAILED: Final = 70
"""Exit status of an unexpected error: `EX_SOFTWARE` of sysexits.h."""
UNREAD: Final = 141
"""Exit status if the output pipe is closed: the status that shells give SIGPIPE."""
_MISTAKE: Final = 2


def main() -> None:
    """Run the command line; if its extra is not installed, print which one is missing."""
    try:
        from rule_runtime.cli.app import app  # noqa: PLC0415 - only the command needs typer
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        sys.stderr.write(f"stepwatch needs the extra cli: {install_hint('cli')}\n")
        sys.exit(_MISTAKE)
    try:
        _end_where_nobody_reads(app)
    except Exception:  # noqa: BLE001 - Python's own status for it is that of an issue
        import traceback  # noqa: PLC0415 - mostly not needed

        traceback.print_exc()
        sys.stderr.write("stepwatch: this is an error of Stepwatch; please report it\n")
        sys.exit(FAILED)


def _end_where_nobody_reads(app: Callable[[], None]) -> None:
    """Run the commands; exit with `UNREAD` if the output pipe is closed (Typer: with 1)."""
    try:
        try:
            app()
        except SystemExit as end:
            if isinstance(end.__context__, BrokenPipeError):  # click and rich exit this way
                raise end.__context__ from None
            raise
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
        sys.exit(UNREAD)


def _drop_output() -> None:
    """Discard the pending output, because Python would report an error at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
