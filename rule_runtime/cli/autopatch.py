"""The command `autopatch`: watches unchanged scripts in a Python environment."""

from __future__ import annotations

import json
from enum import Enum
from typing import Annotated

import typer

from rule_runtime.cli.options import OutputFormat, OutputOption, choices, mistakes

__all__ = ["autopatch"]


class AutopatchState(str, Enum):
    """Action on the start-up file."""

    ON = "on"
    OFF = "off"
    STATUS = "status"


def autopatch(
    state: Annotated[
        AutopatchState,
        typer.Argument(
            metavar=choices(AutopatchState), help="Switch it on or off, or show the state."
        ),
    ],
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Attach hooks to unchanged scripts in every Python process of this environment.

    It installs a start-up file. The file does nothing unless STEPWATCH_CONFIG, STEPWATCH_OUT_DIR or
    SMDEBUG_CONFIG_FILE_PATH is set, or SageMaker put a configuration into the container.
    """
    with mistakes():
        from hook_layer.autopatch.startup_file import (  # noqa: PLC0415 - loads the hook
            is_on,
            switch_off,
            switch_on,
        )

        shown = {"autopatch": state.value}
        if state is AutopatchState.STATUS:
            shown["autopatch"] = "on" if is_on() else "off"
        else:
            shown["file"] = str(switch_on() if state is AutopatchState.ON else switch_off())
    typer.echo(json.dumps(shown) if output is OutputFormat.JSON else ": ".join(shown.values()))
