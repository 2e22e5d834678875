"""The command `python -m hook_layer`: runs a script as `python` does, with a hook in it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hook_layer.autopatch.hook_source import HookSource
from hook_layer.child_processes import become_python, prepared_environment, unprepared_switch
from hook_layer.errors import ConfigurationFileNotFoundError
from hook_layer.process.uncaught_errors import STOPPED
from hook_layer.storage.base import StorageError, StoreRefusedError

__all__ = ["MISTAKE", "STARTUP", "main"]

MISTAKE: Final = 2
"""Exit status where the command line or the configuration file has a mistake."""
STARTUP: Final = "hook_layer.autopatch.startup"
"""The module by which a Python is watched that imports it when it starts."""

_EPILOGUE = f"""
The command checks the configuration and becomes `python SCRIPT`. This Python, and each one that it
starts, watches the training that it finds.

Without --config and --out-dir the folder is the one that STEPWATCH_OUT_DIR names. Without that the
configuration file is the one that STEPWATCH_CONFIG or SMDEBUG_CONFIG_FILE_PATH names, else
SageMaker's. Without any of them the script runs as it is. USE_SMDEBUG=0 switches hooks off.

exit status: the script's; {MISTAKE}: a mistake in the command line or the configuration file, or a
folder that cannot be written to; {STOPPED}: a rule requested a stop, and the script did not
catch the error.
"""


def main(arguments: Sequence[str]) -> int:
    """Run the command; it returns an exit status only where the script is not run."""
    options = _parser().parse_args(arguments)
    source = HookSource.of(options.config, options.out_dir)
    if options.kind is None and options.script[0] != "-" and not Path(options.script[0]).exists():
        return _mistake(f"{options.script[0]}: the script does not exist")
    environment: dict[str, str] = {}
    try:
        _check(source)
        environment = _environment(source)
    except ConfigurationFileNotFoundError as error:
        if options.config is not None:
            return _mistake(error)
        _say(f"the script runs without a hook: {error}")
    except (ValueError, StoreRefusedError) as error:
        return _mistake(error)
    return become_python([*([options.kind] if options.kind else []), *options.script], environment)


def _check(source: HookSource) -> None:
    """Check where the hook comes from; log a folder that may accept files later.

    Raises:
        ValueError: The configuration or the folder's URI has a mistake.
        StoreRefusedError: The folder cannot be written to until somebody changes something.
    """
    try:
        source.check()
    except StoreRefusedError:
        raise
    except StorageError as error:  # the hook keeps steps for a while, and tries again
        _say(f"nothing can be written for now, the script runs and it is tried again: {error}")


def _environment(source: HookSource) -> dict[str, str]:
    switch = unprepared_switch()
    if switch is not None:
        _say(
            f"the script runs without a hook: with {switch} Python does not read PYTHONPATH, by "
            f"which Stepwatch gets into it; leave {switch} out"
        )
        return {}
    return {**source.environment(), **prepared_environment(STARTUP)}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m hook_layer",
        description="Run a training script, unchanged, with a hook that captures its tensors.",
        epilog=_EPILOGUE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--config", metavar="FILE", help="configuration file, or its s3:// URI")
    parser.add_argument(
        "--out-dir", metavar="DIR", help="folder or s3:// URI to write to, with the hook's defaults"
    )
    kinds = parser.add_mutually_exclusive_group()
    for switch, what in (("-m", "a module's name"), ("-c", "a program")):
        kinds.add_argument(
            switch, dest="kind", action="store_const", const=switch, help=f"SCRIPT is {what}"
        )
    # PARSER takes all that stands behind the script as it is, a lone "--" too.
    parser.add_argument(
        "script", metavar="SCRIPT", nargs=argparse.PARSER, help="the training script, its arguments"
    )
    return parser


def _mistake(error: object) -> int:
    _say(error)
    return MISTAKE


def _say(what: object) -> None:
    sys.stderr.write(f"stepwatch: {what}\n")
