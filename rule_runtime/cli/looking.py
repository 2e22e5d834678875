"""The commands that show what a run saved: `tensors` and `plot`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from rule_runtime.cli.options import (
    OutputFormat,
    OutputOption,
    RegexOption,
    RunArgument,
    mistakes,
    nothing_chosen,
    open_run,
)
from rule_runtime.cli.tables import Records
from rule_runtime.evaluation.wording import counted

if TYPE_CHECKING:
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
        names = trial.select_tensors(regex, collection)
        if not names:
            raise nothing_chosen(path, regex, collection)
    if output is OutputFormat.JSON:
        described = {name: trial.tensor(name).description() for name in names}
        typer.echo(json.dumps(_facts(trial, described), indent=2))
        return
    facts = _facts(trial, {name: trial.tensor(name).facts() for name in names})
    table = Records(*facts[0], whole=("shape", "type"))
    for fact in facts:
        cells = (", ".join(v) if isinstance(v, list) else str(v) for v in fact.values())
        table.add_row(*(Text(cell) for cell in cells))
    Console().print(table)
    numbers = {"tensor": len(facts), "step": len(trial.steps()), "worker": len(trial.workers())}
    typer.echo(", ".join(counted(number, noun) for noun, number in numbers.items()))


def _facts(trial: Trial, told: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what is told of each tensor, with its name and its collections."""
    collections = list(trial.collections().values())
    return [
        {
            "tensor": name,
            **of_tensor,
            "collections": [of.name for of in collections if name in of.tensor_names],
        }
        for name, of_tensor in told.items()
    ]


def plot(  # noqa: PLR0917 - each is an option of the command
    path: RunArgument,
    output_file: Annotated[
        Path, typer.Option("--output-file", "-f", help="Where to draw: .png, .svg or .pdf.")
    ] = Path("plot.png"),
    regex: RegexOption = None,
    collection: _CollectionOption = None,
    statistic: Annotated[
        str | None, typer.Option(help="mean, l2, std, nan, ... Default: the value, or the mean.")
    ] = None,
    log: Annotated[bool, typer.Option("--log", help="A logarithmic axis.")] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Draw tensors of a run over its steps; the losses unless others are chosen."""
    with mistakes():
        trial = open_run(path)
        figure = trial.plot(regex=regex, collection=collection, statistic=statistic, log=log)
        figure.savefig(output_file, bbox_inches="tight", dpi=150)
    if output is OutputFormat.JSON:
        typer.echo(json.dumps({"plot": str(output_file)}))
    else:
        typer.echo(str(output_file))
