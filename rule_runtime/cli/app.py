"""The commands and their arguments."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer
from rich.console import Console

from hook_layer.storage.base import StorageError
from rule_runtime.cli.evaluation import ExitStatus, evaluate_run, exit_status, parse_rule
from rule_runtime.cli.output import rules_table, verdicts_json, verdicts_table
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
        typer.Option(help="NAME[:key=value,...]; may be repeated. All rules if it is not given."),
    ] = None,
    output: Annotated[OutputFormat, typer.Option(help="How to print.")] = OutputFormat.TABLE,
) -> None:
    """Judge a stored run; exit status 0: no issue, 1: an issue found, 2: could not judge."""
    errors = Console(stderr=True)
    try:
        chosen = [parse_rule(text) for text in rule or sorted(available_rules())]
        states = evaluate_run(path, chosen)
    except (ValueError, StorageError, ImportError) as error:
        errors.print(f"stepwatch: {error}", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(ExitStatus.NOT_JUDGED) from None
    if output is OutputFormat.JSON:
        typer.echo(verdicts_json(states))
    else:
        Console().print(verdicts_table(states))
    raise typer.Exit(exit_status(states.values()))
