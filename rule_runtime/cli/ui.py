"""The command `ui`: shows runs in the browser, also while they train."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from rule_runtime.cli.destinations import printed_aside
from rule_runtime.cli.options import (
    ChosenRules,
    OutputFormat,
    OutputOption,
    PackOption,
    RuleOption,
    evaluated_or_stored,
    mistakes,
)

__all__ = ["ui"]

_Port = Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")]
_Host = Annotated[
    str,
    typer.Option(
        help="Address to listen on. For one that other machines reach, the page needs the token in "
        "the printed address."
    ),
]
_Folder = Annotated[
    str, typer.Argument(help="Folder of runs; or folder or s3:// URI of a session or of a run.")
]


def ui(  # noqa: PLR0917 - each is an option of the command
    folder: _Folder = "runs",
    rule: RuleOption = None,
    pack: PackOption = None,
    port: _Port = 8400,
    host: _Host = "127.0.0.1",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show all runs of a folder in the browser: list, comparison, and each run. Ctrl-C ends it.

    The page follows runs while they train. It shows the verdicts stored in `rule-output/`. Of a run
    without any, it evaluates the rules that the run configures, otherwise the pack `recommended`.
    With --rule or --pack, it evaluates those. It writes and stops nothing. With `--output json` it
    prints the address as one line of JSON.
    """
    stdout = sys.stdout

    def show(address: str) -> None:
        is_json = output is OutputFormat.JSON
        shown = json.dumps({"url": address}) if is_json else f"page: {address}"
        typer.echo(shown, file=stdout)

    with mistakes(), printed_aside(output):
        from rule_runtime.live_page import server  # noqa: PLC0415 - needs the extra ui
        from rule_runtime.live_page.catalogue import Catalogue  # noqa: PLC0415 - loads numpy
        from rule_runtime.live_page.watched_runs import WatchedRuns  # noqa: PLC0415 - as above
        from rule_runtime.trial.sessions import runs_at  # noqa: PLC0415 - as above

        are_named = bool(rule or pack)
        if are_named:
            ChosenRules.of(rule, pack)  # a mistake in a rule is reported now
        catalogue = Catalogue(folder)
        if catalogue.is_remote:
            runs_at(folder)
        elif not Path(folder).is_dir():
            raise ValueError(f"{folder}: there is no such folder; give one that holds runs")
        runs = WatchedRuns(
            catalogue, lambda store: evaluated_or_stored(store, rule, pack), are_named=are_named
        )
        server.serve(runs, host=host, port=port, on_ready=show)
