"""The commands `tensors` and `plot`: list and plot saved tensors."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from hook_layer.format.modes import ModeKeys
from rule_runtime.cli.destinations import ready_file
from rule_runtime.cli.options import (
    OutputFormat,
    OutputOption,
    RegexOption,
    RunArgument,
    RunsArgument,
    mistakes,
    nothing_chosen,
    open_run,
)
from rule_runtime.cli.tables import Records
from rule_runtime.engine.outcome import counted

if TYPE_CHECKING:
    from rule_runtime.trial.trial import Trial

__all__ = ["plot", "tensors"]

_CollectionOption = Annotated[
    str | None, typer.Option("--collection", help="Only tensors of this collection.")
]
_NO_COLLECTION: Final = "in no collection"


def tensors(
    path: RunArgument,
    regex: RegexOption = None,
    collection: _CollectionOption = None,
    every: Annotated[bool, typer.Option("--all", "-a", help="List every tensor.")] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List what a run saved: its collections, or its tensors.

    With --all, --regex, --collection or JSON output it lists tensors with their steps, newest shape
    and type, and collections.
    """
    with mistakes():
        trial = open_run(path)
        names = trial.select_tensors(regex, collection)
        if not names:
            raise nothing_chosen(path, regex, collection)
    if output is OutputFormat.JSON:
        described = {name: trial.tensor(name).description() for name in names}
        typer.echo(json.dumps(_facts(trial, described), indent=2))
        return
    is_listed = every or bool(regex) or collection is not None
    Console().print(_tensors_table(trial, names) if is_listed else _collections_table(trial, names))
    numbers = {"tensor": len(names), "step": len(trial.steps()), "worker": len(trial.workers())}
    typer.echo(", ".join(counted(number, noun) for noun, number in numbers.items()))
    if not is_listed:
        typer.echo("--all, --regex and --collection list the tensors")


def _tensors_table(trial: Trial, names: Sequence[str]) -> Records:
    facts = _facts(trial, {name: trial.tensor(name).facts() for name in names})
    table = Records(*facts[0], whole=("shape", "type"))
    for fact in facts:
        cells = (", ".join(v) if isinstance(v, list) else str(v) for v in fact.values())
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _collections_table(trial: Trial, names: Sequence[str]) -> Records:
    """Return a row for each collection with tensors, and one for tensors without a collection."""
    from rule_runtime.trial.notebook import steps_text  # noqa: PLC0415 - loads numpy

    collections, modes = trial.collections(), trial.modes()
    members: dict[str, list[str]] = {name: [] for name in (*sorted(collections), _NO_COLLECTION)}
    for name in names:
        holders = [key for key, of in collections.items() if name in of.tensor_names]
        for holder in holders or [_NO_COLLECTION]:
            members[holder].append(name)
    table = Records("collection", "tensors", "steps", "an example", whole=("tensors",))
    for holder, held in members.items():
        steps = {
            mode: {step for name in held for step in trial.tensor(name).steps(mode=mode)}
            for mode in modes
        }
        if not any(steps.values()):  # modes were never set, as in XGBoost
            steps = {
                ModeKeys.GLOBAL: {step for name in held for step in trial.tensor(name).steps()}
            }
        if held:
            table.add_row(holder, str(len(held)), steps_text(steps), held[0])
    return table


def _facts(trial: Trial, described: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return facts about each tensor, with its name and collections."""
    collections = list(trial.collections().values())
    return [
        {
            "tensor": name,
            **of_tensor,
            "collections": [of.name for of in collections if name in of.tensor_names],
        }
        for name, of_tensor in described.items()
    ]


def plot(  # noqa: PLR0917 - each is an option of the command
    paths: RunsArgument,
    output_file: Annotated[
        Path,
        typer.Option(
            "--output-file", "-f", metavar="FILE", help="Where to draw: .png, .svg or .pdf."
        ),
    ] = Path("plot.png"),
    regex: RegexOption = None,
    collection: _CollectionOption = None,
    statistic: Annotated[
        str | None, typer.Option(help="mean, l2, std, nan, ... Default: the value, or the mean.")
    ] = None,
    log: Annotated[bool, typer.Option("--log", help="A logarithmic axis.")] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Draw tensors of one or several runs over the steps; the losses unless others are chosen."""
    with mistakes():
        trials = [open_run(path) for path in paths]
        if len(trials) > 1:  # all may be called run-1
            prefix = os.path.commonprefix(paths)  # noqa: RUF071 - its last part is cut off
            folder = prefix.rpartition("/")[0]
            for trial, path in zip(trials, paths, strict=True):
                trial.name = path.removeprefix(folder).strip("/")
        ready_file(output_file)
        from rule_runtime.plotting import plot_tensors  # noqa: PLC0415 - needs matplotlib

        figure = plot_tensors(
            trials, regex=regex, collection=collection, statistic=statistic, log=log
        )
        figure.savefig(output_file, bbox_inches="tight", dpi=150)
    if output is OutputFormat.JSON:
        typer.echo(json.dumps({"plot": str(output_file)}))
    else:
        typer.echo(str(output_file))
