"""The command `python -m hook_layer`: runs a script as `python` would, with a hook in it."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Final

from hook_layer.autopatch import watch_frameworks
from hook_layer.autopatch.hook_source import HookSource
from hook_layer.current_hook import CurrentHook
from hook_layer.errors import (
    ConfigurationFileNotFoundError,
    TrainingStoppedError,
)
from hook_layer.storage.base import StorageError, StoreRefusedError

__all__ = ["MISTAKE", "STOPPED", "main"]

MISTAKE: Final = 2
"""Exit status where the command line or the configuration file has a mistake."""
STOPPED: Final = 3
"""Exit status where a rule asked for the end of the training, and the script ended without an own.

Some frameworks (Keras, XGBoost, Lightning, Hugging Face's Trainer) end a training in their own way,
and the script goes on behind it; in others an error leaves the script.
"""

_ORIGINALS: Final = frozenset({"smdebug", "smdebug_rulesconfig"})
_ALIAS: Final = (
    "Stepwatch has the original client's names where the script is started by `python -m "
    "rule_runtime.smdebug_alias train.py` (`stepwatch run -- python -m rule_runtime.smdebug_alias "
    "train.py`); or change the import, smdebug.pytorch to hook_layer.pytorch"
)

_EPILOGUE = f"""
Without --config and --out-dir the folder is the one that STEPWATCH_OUT_DIR names. Without that the
configuration file is the one that STEPWATCH_CONFIG or SMDEBUG_CONFIG_FILE_PATH names, else
SageMaker's. Without any of them the script runs as it is. USE_SMDEBUG=0 switches hooks off.

exit status: the script's; {MISTAKE}: a mistake in the command line or the configuration file, or a
folder that cannot be written to; {STOPPED}: a rule asked for the end of the training.
"""


def main(arguments: Sequence[str]) -> int:
    """Run the command.

    Args:
        arguments: What stands behind the command's name.

    Returns:
        The exit status, where the script did not end the process itself.
    """
    options = _parser().parse_args(arguments)
    source = HookSource.of(options.config, options.out_dir)
    try:
        _check(source)
        watch_frameworks(source)
    except ConfigurationFileNotFoundError as error:
        if options.config is not None:
            return _mistake(error)
        _say(f"the script runs without a hook: {error}")
    except (ValueError, StoreRefusedError) as error:
        return _mistake(error)
    try:
        _run(*options.script, is_module=options.module)
    except TrainingStoppedError as stopped:
        _say(stopped)
        return STOPPED
    except ModuleNotFoundError as error:
        if error.name in _ORIGINALS:
            error.msg = f"{error.msg}: {_ALIAS}"
        raise
    hook = CurrentHook.of_any_framework()
    if hook is not None and hook.was_stopped:
        _say(f"training was stopped: {hook.stop_reason}")
        return STOPPED
    return 0


def _check(source: HookSource) -> None:
    """Check where the hook comes from; a folder that may take it later is told, and ends nothing.

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
    parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT is a module's name")
    # PARSER takes all that stands behind the script as it is, a lone "--" too.
    parser.add_argument(
        "script", metavar="SCRIPT", nargs=argparse.PARSER, help="the training script, its arguments"
    )
    return parser


def _run(script: str, *arguments: str, is_module: bool) -> None:
    """Run a script or module as the main program of this process."""
    sys.argv = [script, *arguments]
    if is_module:  # the working folder is the first of sys.path already: python -m put it there
        runpy.run_module(script, run_name="__main__", alter_sys=True)
        return
    path = Path(script)
    if not path.is_file():
        sys.exit(_mistake(f"{script}: there is no such script"))
    if not getattr(sys.flags, "safe_path", sys.flags.isolated):  # else it is somebody else's
        sys.path[0] = str(path.resolve().parent)
    # As Python has it: scripts look for their files with it after they changed folders.
    file = os.path.abspath(script)  # noqa: PTH100 - a link stays one
    # The module stays: what runs at exit, and processes that are spawned, look for it.
    main_module = ModuleType("__main__")
    main_module.__file__ = file
    main_module.__loader__ = SourceFileLoader("__main__", file)
    vars(main_module)["__builtins__"] = __builtins__
    sys.modules["__main__"] = main_module
    code = compile(path.read_bytes(), file, "exec", dont_inherit=True)
    exec(code, vars(main_module))  # noqa: S102 - the user's own script


def _mistake(error: object) -> int:
    _say(error)
    return MISTAKE


def _say(what: object) -> None:
    sys.stderr.write(f"stepwatch: {what}\n")
