"""The command `compare`: compares two runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

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
from rule_runtime.engine.json_codec import json_number
from rule_runtime.optional_extra import require_report_extra

if TYPE_CHECKING:
    from rule_runtime.trial.comparison import Comparison

__all__ = ["compare"]

_DIFFERENT = 1
_MAX_ROWS = 40
_MAX_NAMED = 10


def compare(
    first: RunArgument,
    second: RunArgument,
    regex: RegexOption = None,
    tolerance: Annotated[
        float, typer.Option(min=0, help="Largest relative difference that counts as equal.")
    ] = 1e-6,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Compare two runs: for each tensor, the first step at which its statistics differ.

    Statistics that only one run saved are ignored.

    Exit status 0: no difference; 1: differences; 2: not comparable.
    """
    with mistakes():
        from rule_runtime.trial.comparison import compare_trials  # noqa: PLC0415 - loads numpy

        require_report_extra("comparing runs", "pandas")

        found = compare_trials(open_run(first), open_run(second), regex=regex, tolerance=tolerance)
        parts = (found.differences, found.only_in_first, found.only_in_second, found.not_in_common)
        if not any(parts):
            raise nothing_chosen(first, regex)
    if output is OutputFormat.JSON:
        described = {"is_same": found.is_same, **asdict(found)}
        described["differences"] = [
            {**asdict(each), "largest": json_number(each.largest)} for each in found.differences
        ]
        typer.echo(json.dumps(described, indent=2))
    else:
        _print(found)
    raise typer.Exit(0 if found.is_same else _DIFFERENT)


def _print(found: Comparison) -> None:
    console = Console()
    numbers = ("first difference", "largest, relative", "steps in common")
    table = Records("tensor", *numbers, whole=numbers)
    for each in found.differences[:_MAX_ROWS]:
        is_same = each.first_step is None
        first = "none" if is_same else f"{each.mode} step {each.first_step}"
        style = "green" if is_same else "red"
        cells = (each.tensor, first, f"{each.largest:.3g}", str(each.num_common))
        table.add_row(*(Text(cell, style=style) for cell in cells))
    console.print(table)
    hidden = len(found.differences) - _MAX_ROWS
    if hidden > 0:
        console.print(f"... and {hidden} more; --regex chooses, --output json has all")
    for heading, names in (
        *_not_comparable(found),
        ("only in the first", found.only_in_first),
        ("only in the second", found.only_in_second),
        ("never saved at the same step", found.not_in_common),
    ):
        if names:
            console.print(Text(f"{heading}: {_named(names)}"), soft_wrap=True)


def _not_comparable(found: Comparison) -> list[tuple[str, list[str]]]:
    """Return a sentence about statistics that only one run has, with their tensors."""
    by_statistics: dict[str, list[str]] = {}
    for each in found.differences:
        if each.not_comparable:
            text = f"not comparable, as only one run has it: {', '.join(each.not_comparable)} of"
            by_statistics.setdefault(text, []).append(each.tensor)
    return list(by_statistics.items())


def _named(names: Sequence[str]) -> str:
    """Return names separated by commas; of many names, some and the number of further ones."""
    hidden = len(names) - _MAX_NAMED
    more = [f"{hidden} more; --output json has all"] if hidden > 0 else []
    return ", ".join([*names[:_MAX_NAMED], *more])
