"""The commands, by name; each is a function of a module of its own."""

from __future__ import annotations

from typing import Final

import typer

from rule_runtime.cli.autopatching import autopatch
from rule_runtime.cli.comparing import compare
from rule_runtime.cli.doctoring import doctor
from rule_runtime.cli.downloading import download
from rule_runtime.cli.explaining import rules_app
from rule_runtime.cli.judging import evaluate, run
from rule_runtime.cli.local_target import local_app
from rule_runtime.cli.looking import plot, tensors
from rule_runtime.cli.report import report
from rule_runtime.cli.status import status
from rule_runtime.cli.ui import ui
from rule_runtime.cli.watching import watch

__all__ = ["app"]

_EPILOGUE: Final = (
    "Exit status of all commands: 0: done, and nothing is wrong; 1: an issue or a difference was "
    "found; 2: a mistake, or what was asked for could not be done."
)

app = typer.Typer(
    name="stepwatch",
    help="Watches every step of a training job.",
    epilog=_EPILOGUE,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

app.command(context_settings={"allow_interspersed_args": False})(run)
for _command in (
    watch,
    evaluate,
    status,
    compare,
    tensors,
    plot,
    report,
    ui,
    download,
    autopatch,
    doctor,
):
    app.command()(_command)
app.add_typer(rules_app)
app.add_typer(local_app)
