"""The command `download`: copies a run, also during training."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from hook_layer.storage.base import open_store
from hook_layer.storage.local import LocalStore
from hook_layer.storage.untrusted_folder import PlainFileStore
from rule_runtime.cli.options import (
    OutputFormat,
    OutputOption,
    RunArgument,
    mistakes,
    newest_run,
    progress,
)

__all__ = ["download"]


def download(
    path: RunArgument,
    folder: Annotated[Path, typer.Argument(help="Folder for the copy.")],
    first_step: Annotated[
        int, typer.Option(min=0, metavar="STEP", help="First global step to copy.")
    ] = 0,
    last_step: Annotated[
        int | None,
        typer.Option(min=0, metavar="STEP", help="Last global step to copy. Default: all."),
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Copy a run to a folder. Running it again copies only new files; links are not followed."""
    with mistakes(), progress() as bar:
        from rule_runtime.trial.snapshot import copy_run  # noqa: PLC0415 - loads numpy

        source = open_store(newest_run(path))
        snapshot = copy_run(
            PlainFileStore(source.path) if isinstance(source, LocalStore) else source,
            LocalStore(folder),
            first_step=first_step,
            last_step=last_step,
            on_start=bar.begin,
            on_copied=bar.done,
        )
    if output is OutputFormat.JSON:
        typer.echo(json.dumps(asdict(snapshot), indent=2))
        return
    state = "has ended" if snapshot.has_ended else "continues"
    typer.echo(
        f"{folder}: {snapshot.num_files} files of steps, {snapshot.num_new} of them new; "
        f"the training {state}"
    )
