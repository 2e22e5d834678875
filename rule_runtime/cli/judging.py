"""The commands that judge a run: `run` and `evaluate`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from rule_runtime.cli.evaluation import evaluate_run, exit_status
from rule_runtime.cli.options import (
    ChosenRules,
    OutputFormat,
    OutputOption,
    PackOption,
    RuleOption,
    RunArgument,
    mistakes,
    progress,
)
from rule_runtime.cli.output import verdicts_table
from rule_runtime.cli.running import RunOptions, WatchedRun, default_out_dir
from rule_runtime.evaluation.state import EvaluationState
from rule_runtime.reporting.verdicts import VERDICT_FORMATS

__all__ = ["evaluate", "run"]


class VerdictFormat(str, Enum):
    """How verdicts are told."""

    TABLE = "table"
    JSON = "json"
    JUNIT = "junit"
    SARIF = "sarif"


_FILE: Final = typer.Option("--output-file", help="Where to write them; default: to the terminal.")


def run(  # noqa: PLR0917 - each is an option of the command
    command: Annotated[
        list[str], typer.Argument(help="The training: `-- python train.py ...`, unchanged.")
    ],
    rule: RuleOption = None,
    pack: PackOption = None,
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
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Run a training script, unchanged, judge it meanwhile and stop it at an issue.

    Findings of rules that are named stop it, and of a pack those that are reason enough. Exit
    status 0: no issue, 1: an issue found, 2: could not judge, 4: the script failed by itself.
    """
    with mistakes():
        chosen = ChosenRules.of(rule, pack)
        stops = frozenset() if observe else chosen.stops
        options = RunOptions(out_dir or default_out_dir(command), save_interval, stops, patience)
        watched = WatchedRun(chosen.all, options, Console(stderr=True))
        status = watched.run(command)
    _print_verdicts(options.out_dir, watched.states, VerdictFormat(output.value))
    if output is OutputFormat.TABLE:
        typer.echo(f"tensors: {options.out_dir}")
    raise typer.Exit(status)


def evaluate(
    path: RunArgument,
    rule: RuleOption = None,
    pack: PackOption = None,
    output: Annotated[
        VerdictFormat, typer.Option(help="How to tell the verdicts.")
    ] = VerdictFormat.TABLE,
    output_file: Annotated[Path | None, _FILE] = None,
) -> None:
    """Judge a stored run; exit status 0: no issue, 1: an issue found, 2: could not judge.

    Of a pack it is enough that some rule could judge: not every rule fits every training. Those
    that did not are told with the reason, in JUnit's format as skipped.
    """
    with mistakes():
        chosen = ChosenRules.of(rule, pack)
        with progress() as bar:
            bar.begin(len(chosen.all))
            states = evaluate_run(path, chosen.all, on_judged=bar.done)
        _print_verdicts(path, states, output, output_file)
    raise typer.Exit(exit_status(states, required=chosen.names))


def _print_verdicts(
    path: str,
    states: Mapping[str, EvaluationState],
    output: VerdictFormat,
    file: Path | None = None,
) -> None:
    if output is VerdictFormat.TABLE:
        if file is None:
            Console().print(verdicts_table(states))
            return
        with file.open("w", encoding="utf-8") as opened:
            Console(file=opened, width=120).print(verdicts_table(states))
        return
    text = VERDICT_FORMATS[output.value](path, states)
    if file is None:
        typer.echo(text)
    else:
        file.write_text(text + "\n", encoding="utf-8")
