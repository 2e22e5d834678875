"""The command `autopatch`: scripts of an environment that are watched without a change to them."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from hook_layer.autopatch.startup_file import is_on, switch_off, switch_on
from rule_runtime.cli.options import mistakes

__all__ = ["autopatch"]


class AutopatchState(str, Enum):
    """What is done about the start-up file."""

    ON = "on"
    OFF = "off"
    STATUS = "status"


def autopatch(
    state: Annotated[AutopatchState, typer.Argument(help="Whether scripts are watched.")],
) -> None:
    """Let every Python of this environment watch unchanged scripts, or no more.

    It installs a start-up file, which does nothing unless STEPWATCH_CONFIG, STEPWATCH_OUT_DIR or
    SMDEBUG_CONFIG_FILE_PATH is set, or SageMaker has put a configuration into the container.
    """
    with mistakes():
        if state is AutopatchState.STATUS:
            typer.echo("on" if is_on() else "off")
        else:
            file = switch_on() if state is AutopatchState.ON else switch_off()
            typer.echo(f"{state.value}: {file}")
