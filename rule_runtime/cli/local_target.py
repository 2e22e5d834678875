"""The commands `local ...`: run the deployed stack on this machine."""

from __future__ import annotations

import importlib.util
import runpy
import sys
from pathlib import Path
from typing import Annotated

import typer

from rule_runtime.cli.command_style import PlainGroup
from rule_runtime.cli.options import OutputFormat, OutputOption, mistakes

__all__ = ["local_app"]

local_app = typer.Typer(
    name="local",
    cls=PlainGroup,
    help="Run the deployed stack on this machine.",
    no_args_is_help=True,
)


@local_app.callback()
def _group() -> None:
    """Make Typer treat `up` as a subcommand."""


@local_app.command()
def up(
    context: Annotated[
        list[str] | None,
        typer.Option(
            "--context",
            "-c",
            metavar="KEY=VALUE",
            help="Setting of the CDK context. Repeat it for several.",
        ),
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Deploy the stack into an emulator on this machine, and run it until Ctrl-C.

    It prints the environment variables for training scripts. It needs a checkout of the repository.
    """
    with mistakes():
        sys.path.insert(0, str(Path.cwd()))  # same as for `python -m`
        if importlib.util.find_spec("infra") is None:
            raise ValueError(
                "the stack is part of the repository, not of the installed package: run this in a "
                "checkout, after `make setup`"
            )
        importlib.import_module("infra")  # reports what is missing
        options = [part for each in context or () for part in ("--context", each)]
        options += ["--json"] if output is OutputFormat.JSON else []
        sys.argv = ["stepwatch local up", *options]
        runpy.run_module("infra.local", run_name="__main__", alter_sys=True)
