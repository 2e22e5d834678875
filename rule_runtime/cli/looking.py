"""The commands that show what a run saved: `tensors` and `plot`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from rule_runtime.cli.options import (
    OutputFormat,
    OutputOption,
    RegexOption,
    RunArgument,
    mistakes,
    open_run,
)
from rule_runtime.trial.trial import Trial

__all__ = ["plot", "tensors"]

_CollectionOption = Annotated[
    str | None, typer.Option("--collection", help="Only tensors of this collection.")
]


def tensors(
    path: RunArgument,
    regex: RegexOption = None,
    collection: _CollectionOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List the tensors of a run, with their steps, newest shape and type, and collections."""
    with mistakes():
        trial = open_run(path)
        facts = [_facts(trial, name) for name in trial.select_tensors(regex, collection)]
    if output is OutputFormat.JSON:
        typer.echo(json.dumps(facts, indent=2))
        return
    table = Table(*(Column(name, overflow="fold") for name in (facts[0] if facts else ())))
    for fact in facts:
        cells = (", ".join(v) if isinstance(v, list) else str(v) for v in fact.values())
        table.add_row(*(Text(cell) for cell in cells))
    Console().print(table)
    typer.echo(f"{len(facts)} tensors, {len(trial.steps())} steps, {len(trial.workers())} workers")


def _facts(trial: Trial, name: str) -> dict[str, Any]:
    return {
        "tensor": name,
        **trial.tensor(name).facts(),
        "collections": [of.name for of in trial.collections().values() if name in of.tensor_names],
    }


def plot(  # noqa: PLR0917 - each is an option of the command
    path: RunArgument,
    file: Annotated[
        Path, typer.Option("--file", "-f", help="Where to draw: .png, .svg or .pdf.")
    ] = Path("plot.png"),
    regex: RegexOption = None,
    collection: _CollectionOption = None,
    statistic: Annotated[
        str | None, typer.Option(help="mean, l2, std, nan, ... Default: the value, or the mean.")
    ] = None,
    log: Annotated[bool, typer.Option("--log", help="A logarithmic axis.")] = False,
) -> None:
    """Draw tensors of a run over its steps; the losses unless others are chosen."""
    with mistakes():
        trial = open_run(path)
        figure = trial.plot(regex=regex, collection=collection, statistic=statistic, log=log)
        figure.savefig(file, bbox_inches="tight", dpi=150)
    typer.echo(str(file))
