"""Registers the commands by name; each is a function in its own module."""

from __future__ import annotations

import inspect
import logging
from typing import Annotated, Any, Final

import typer

from rule_runtime.cli.autopatch import autopatch
from rule_runtime.cli.clean import clean
from rule_runtime.cli.command_style import PlainCommand, PlainGroup, with_json
from rule_runtime.cli.compare import compare
from rule_runtime.cli.doctor import doctor
from rule_runtime.cli.download import download
from rule_runtime.cli.local_target import local_app
from rule_runtime.cli.report import report
from rule_runtime.cli.rules import rules_app
from rule_runtime.cli.run_and_evaluate import evaluate, run
from rule_runtime.cli.runs import runs
from rule_runtime.cli.status import status
from rule_runtime.cli.tensors import plot, tensors
from rule_runtime.cli.ui import ui
from rule_runtime.cli.watch import watch

__all__ = ["app"]

_EPILOGUE: Final = (
    "Exit status of all commands: 0: success; 1: an issue or a difference was found; 2: wrong "
    "usage, or the command could not do its work; 70: an internal error of Stepwatch; 141: the "
    "reader of a pipe closed it. `run` also uses 4, 129, 130 and 143."
)

app = typer.Typer(
    name="stepwatch",
    cls=PlainGroup,
    context_settings={"help_option_names": ["--help", "-h"]},
    help="Watch every step of a training job, and stop it when it goes wrong.",
    epilog=_EPILOGUE,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


class _RuleMistakes(logging.Handler):
    """Prints each error in rules and packs once, on one line."""

    printed: set[str]

    def emit(self, record: logging.LogRecord) -> None:
        """Print a message, unless it was printed before."""
        message = record.getMessage()
        if message not in self.printed:
            self.printed.add(message)
            typer.echo(f"stepwatch: {message}", err=True)


_OF_RULES: Final = (
    "rule_runtime.configuration.packs",
    "rule_runtime.custom_rules.rule_mistakes",
    "rule_runtime.engine.evaluator",
    "rule_runtime.engine.registry",
)
"""Loggers of errors in rules and packs."""
_rule_mistakes: Final = _RuleMistakes(logging.WARNING)


def _show_version(is_requested: bool) -> None:
    if is_requested:
        from importlib import metadata  # noqa: PLC0415 - every start would wait for it

        typer.echo(f"stepwatch {metadata.version('stepwatch')}")
        raise typer.Exit


@app.callback()
def _stepwatch(
    version: Annotated[  # noqa: ARG001 - its callback does the work
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Define the options of `stepwatch` itself."""
    _rule_mistakes.printed = set()
    for name in _OF_RULES:
        logging.getLogger(name).addHandler(_rule_mistakes)


app.command(context_settings={"allow_interspersed_args": False})(run)
for _command in (
    watch,
    evaluate,
    status,
    runs,
    clean,
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
for _group in (app, rules_app, local_app):
    for _registered in _group.registered_commands:
        # Typer wraps the lines of a docstring again, but does not join them.
        _callback: Any = _registered.callback  # never None
        _paragraphs = (inspect.getdoc(_callback) or "").split("\n\n")
        _registered.help = "\n\n".join(" ".join(each.split()) for each in _paragraphs)
        _registered.cls = PlainCommand
        _registered.callback = with_json(_callback)
