"""The commands and their arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import Annotated, Final

import typer
from rich.console import Console

from hook_layer.autopatch.startup_file import is_on, switch_off, switch_on
from hook_layer.storage.base import StorageError
from rule_runtime.cli.evaluation import ExitStatus, evaluate_run, exit_status, parse_rule
from rule_runtime.cli.output import rules_table, verdicts_json, verdicts_table
from rule_runtime.cli.running import RunOptions, WatchedRun, default_out_dir
from rule_runtime.configuration.packs import PACKS, find_pack
from rule_runtime.evaluation.registry import available_rules
from rule_runtime.evaluation.state import EvaluationState

__all__ = ["app"]

app = typer.Typer(
    name="stepwatch",
    help="Watches every step of a training job.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


_PACKS: Final = f"Rules that belong together: {', '.join(PACKS)}."


class AutopatchState(str, Enum):
    """What is done about the start-up file."""

    ON = "on"
    OFF = "off"
    STATUS = "status"


class OutputFormat(str, Enum):
    """How verdicts are printed."""

    TABLE = "table"
    JSON = "json"


@app.command()
def rules() -> None:
    """List the rules with their parameters and defaults."""
    Console().print(rules_table(available_rules()))


@app.command(context_settings={"allow_interspersed_args": False})
def run(  # noqa: PLR0917 - each is an option of the command
    command: Annotated[
        list[str], typer.Argument(help="The training: `-- python train.py ...`, unchanged.")
    ],
    rule: Annotated[
        list[str] | None,
        typer.Option(help="NAME[:key=value,...] or FILE.py:NAME[:...]; may be repeated."),
    ] = None,
    pack: Annotated[
        str | None,
        typer.Option(help=f"{_PACKS} Default without --rule: recommended."),
    ] = None,
    out_dir: Annotated[
        str | None, typer.Option(help="Folder for the tensors. Default: runs/SCRIPT-TIME.")
    ] = None,
    save_interval: Annotated[
        int, typer.Option(min=1, help="Steps between two that are saved and judged.")
    ] = 10,
    observe: Annotated[bool, typer.Option("--observe", help="Judge, and never stop.")] = False,
    patience: Annotated[
        float, typer.Option(min=0, help="Seconds ahead of SIGTERM for a script that is to stop.")
    ] = 30.0,
    output: Annotated[OutputFormat, typer.Option(help="How to print.")] = OutputFormat.TABLE,
) -> None:
    """Run a training script, unchanged, judge it meanwhile and stop it at an issue.

    Findings of rules that are named stop it, and of a pack those that are reason enough. Exit
    status 0: no issue, 1: an issue found, 2: could not judge, 4: the script failed by itself.
    """
    with _mistakes():
        named = [parse_rule(text) for text in rule or ()]
        chosen = find_pack(pack or "recommended") if pack or not named else None
        rules = [*named, *(chosen.rules().items() if chosen else ())]
        stops = frozenset() if observe else frozenset(name for name, _ in named)
        if chosen is not None and not observe:
            stops |= chosen.stops
        options = RunOptions(out_dir or default_out_dir(command), save_interval, stops, patience)
        watched = WatchedRun(rules, options, Console(stderr=True))
        status = watched.run(command)
    _print_verdicts(watched.states, output)
    if output is OutputFormat.TABLE:
        typer.echo(f"tensors: {options.out_dir}")
    raise typer.Exit(status)


@app.command()
def autopatch(
    state: Annotated[AutopatchState, typer.Argument(help="Whether scripts are watched.")],
) -> None:
    """Let every Python of this environment watch unchanged scripts, or no more.

    It installs a start-up file, which does nothing unless STEPWATCH_CONFIG, STEPWATCH_OUT_DIR or
    SMDEBUG_CONFIG_FILE_PATH is set, or SageMaker has put a configuration into the container.
    """
    with _mistakes():
        if state is AutopatchState.STATUS:
            typer.echo("on" if is_on() else "off")
        else:
            file = switch_on() if state is AutopatchState.ON else switch_off()
            typer.echo(f"{state.value}: {file}")


@app.command()
def evaluate(
    path: Annotated[str, typer.Argument(help="Folder or s3:// URI of a stored run.")],
    rule: Annotated[
        list[str] | None,
        typer.Option(help="NAME[:key=value,...] or FILE.py:NAME[:...]; may be repeated."),
    ] = None,
    pack: Annotated[
        str | None,
        typer.Option(help=f"{_PACKS} Default without --rule: recommended."),
    ] = None,
    output: Annotated[OutputFormat, typer.Option(help="How to print.")] = OutputFormat.TABLE,
) -> None:
    """Judge a stored run; exit status 0: no issue, 1: an issue found, 2: could not judge.

    Of a pack it is enough that some rule could judge: not every rule fits every training.
    """
    with _mistakes():
        named = [parse_rule(text) for text in rule or ()]
        of_pack = find_pack(pack or "recommended").rules() if pack or not named else {}
        states = evaluate_run(path, [*named, *of_pack.items()])
    _print_verdicts(states, output)
    raise typer.Exit(exit_status(states, required=[name for name, _ in named]))


def _print_verdicts(states: Mapping[str, EvaluationState], output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        typer.echo(verdicts_json(states))
    else:
        Console().print(verdicts_table(states))


@contextmanager
def _mistakes() -> Iterator[None]:
    """Print what the user can change, and end with the status for it."""
    try:
        yield
    except (ValueError, StorageError, ImportError, OSError) as error:
        told = Console(stderr=True)
        told.print(f"stepwatch: {error}", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(ExitStatus.NOT_JUDGED) from None
