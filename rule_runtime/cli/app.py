"""The commands and their arguments."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer
from rich.console import Console

from hook_layer.storage.base import StorageError
from rule_runtime.cli.evaluation import ExitStatus, evaluate_run, exit_status, parse_rule
from rule_runtime.cli.output import rules_table, verdicts_json, verdicts_table
from rule_runtime.configuration.packs import PACKS, find_pack
from rule_runtime.evaluation.registry import available_rules

__all__ = ["app"]

app = typer.Typer(
    name="stepwatch",
    help="Watches every step of a training job.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class OutputFormat(str, Enum):
    """How verdicts are printed."""

    TABLE = "table"
    JSON = "json"


@app.command()
def rules() -> None:
    """List the rules with their parameters and defaults."""
    Console().print(rules_table(available_rules()))


@app.command()
def evaluate(
    path: Annotated[str, typer.Argument(help="Folder or s3:// URI of a stored run.")],
    rule: Annotated[
        list[str] | None,
        typer.Option(help="NAME[:key=value,...] or FILE.py:NAME[:...]; may be repeated."),
    ] = None,
    pack: Annotated[
        str | None,
        typer.Option(
            help=f"Rules that belong together: {', '.join(PACKS)}. Default without --rule: "
            "recommended."
        ),
    ] = None,
    output: Annotated[OutputFormat, typer.Option(help="How to print.")] = OutputFormat.TABLE,
) -> None:
    """Judge a stored run; exit status 0: no issue, 1: an issue found, 2: could not judge.

    Of a pack it is enough that some rule could judge: not every rule fits every training.
    """
    errors = Console(stderr=True)
    try:
        named = [parse_rule(text) for text in rule or ()]
        of_pack = find_pack(pack or "recommended").rules() if pack or not named else {}
        states = evaluate_run(path, [*named, *of_pack.items()])
    except (ValueError, StorageError, ImportError) as error:
        errors.print(f"stepwatch: {error}", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(ExitStatus.NOT_JUDGED) from None
    if output is OutputFormat.JSON:
        typer.echo(verdicts_json(states))
    else:
        Console().print(verdicts_table(states))
    raise typer.Exit(exit_status(states, required=[name for name, _ in named]))
