"""The command `ui`: shows a run in the browser while it trains."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from hook_layer.storage.base import open_store
from rule_runtime.cli.destinations import printed_aside
from rule_runtime.cli.options import (
    OutputFormat,
    OutputOption,
    PackOption,
    RuleOption,
    RunArgument,
    evaluated_or_stored,
    mistakes,
    newest_run,
)

__all__ = ["ui"]

_REMOTE_INTERVAL_S = 5.0
_LOCAL_INTERVAL_S = 1.0

_Port = Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")]
_Host = Annotated[
    str,
    typer.Option(help="Address to listen on. An address that other machines reach needs --expose."),
]
_Expose = Annotated[
    bool,
    typer.Option(
        "--expose",
        help="Allow an address that other machines reach. Anyone who reaches it sees the run.",
    ),
]


def ui(  # noqa: PLR0917 - each is an option of the command
    path: RunArgument,
    rule: RuleOption = None,
    pack: PackOption = None,
    port: _Port = 8400,
    host: _Host = "127.0.0.1",
    expose: _Expose = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show a run in the browser while it trains: verdicts, losses, gradients. Ctrl-C ends it.

    Without --rule and --pack, the rules are those that the run configures, otherwise the pack
    `recommended`. Stored verdicts in `rule-output/` are shown; the other rules are evaluated here.
    It writes and stops nothing. With `--output json` it prints the address as one line of JSON.
    """
    stdout = sys.stdout

    def show(address: str) -> None:
        is_json = output is OutputFormat.JSON
        shown = json.dumps({"url": address}) if is_json else f"live page: {address}"
        typer.echo(shown, file=stdout)

    with mistakes(), printed_aside(output):
        from rule_runtime.live_page import server  # noqa: PLC0415 - needs the extra ui
        from rule_runtime.live_page.follower import RunFollower  # noqa: PLC0415

        if not (expose or server.is_loopback(host)):
            raise ValueError(
                f"other machines reach {host}, and anyone who opens the page sees the run; add "
                "--expose to allow it"
            )
        store = open_store(newest_run(path))
        follower = RunFollower(store, evaluated_or_stored(store, rule, pack))
        is_near = store.uri.startswith("file:")
        server.serve(
            follower,
            host=host,
            port=port,
            interval_s=_LOCAL_INTERVAL_S if is_near else _REMOTE_INTERVAL_S,
            on_ready=show,
        )
