"""Small functions and errors of the original that Stepwatch itself does not need."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping
from typing import Any, Final

from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import END_MARKER
from hook_layer.storage.base import open_store
from rule_runtime.trial import opening
from rule_runtime.trial.errors import TrialError
from rule_runtime.trial.trial import Trial

__all__ = [
    "ALLOWED_MODES",
    "ALLOWED_MODE_NAMES",
    "CONFIG_FILE_PATH_ENV_STR",
    "DEFAULT_COLLECTIONS_FILE_NAME",
    "DEFAULT_CONFIG_FILE_PATH",
    "DEFAULT_SAGEMAKER_OUTDIR",
    "DEFAULT_WORKER_NAME",
    "END_OF_JOB_FILENAME",
    "VERSION",
    "SMDebugCustomerError",
    "SMDebugRuntimeError",
    "SMDebugTypeError",
    "create_hook_from_json_config",
    "create_trial",
    "get_logger",
    "get_path_to_collections",
    "has_training_ended",
    "is_s3",
    "parse_bool",
    "parse_list_from_str",
    "str_to_mode_keys",
    "training_has_ended",
]

VERSION: Final = "1.0.34+stepwatch"
"""The version of the implemented API; compares as that version or later."""

ALLOWED_MODES: Final = list(ModeKeys)
ALLOWED_MODE_NAMES: Final = [mode.name for mode in ModeKeys]
CONFIG_FILE_PATH_ENV_STR: Final = "SMDEBUG_CONFIG_FILE_PATH"
DEFAULT_COLLECTIONS_FILE_NAME: Final = "worker_0_collections.json"
DEFAULT_CONFIG_FILE_PATH: Final = "/opt/ml/input/config/debughookconfig.json"
DEFAULT_SAGEMAKER_OUTDIR: Final = "/opt/ml/output/tensors"
DEFAULT_WORKER_NAME: Final = "worker_0"
END_OF_JOB_FILENAME: Final = END_MARKER

_S3: Final = "s3://"
_FLAGS: Final[Mapping[str, bool]] = {"False": False, "false": False, "True": True, "true": True}


class SMDebugCustomerError(TrialError):
    """For scripts that catch it; never raised."""


class SMDebugTypeError(TrialError, TypeError):
    """For scripts that catch it; never raised."""


class SMDebugRuntimeError(TrialError, RuntimeError):
    """For scripts that catch it; never raised."""


def create_hook_from_json_config(
    hook_cls: Any, json_config_path: str | None, default_values: object = None
) -> Any:
    """Return a hook from a configuration file."""
    del default_values
    return hook_cls.create_from_json_file(json_config_path)


def create_trial(
    path: str | os.PathLike[str],
    name: str | None = None,
    profiler: bool = False,
    output_dir: str = "/opt/ml/processing/outputs/",
    **options: Any,
) -> Trial:
    """Open a trial after its run began: waits for the collections files, as the original does."""
    options.setdefault("wait_s", math.inf)
    return opening.create_trial(path, name, profiler, output_dir, **options)


def get_logger(name: str = "smdebug") -> logging.Logger:
    """Return this package's logger for any name."""
    del name
    return logging.getLogger("stepwatch")


def get_path_to_collections(directory: str) -> str:
    """Return the folder of the collections files of a trial."""
    return f"{directory.rstrip('/')}/collections/000000000/"


def has_training_ended(trial_prefix: str) -> bool:
    """Return whether a trial has an end marker."""
    return open_store(trial_prefix).exists(END_MARKER)


def training_has_ended(trial_prefix: str) -> None:
    """Write the end marker of a trial, as the original does outside of a platform."""
    if not os.environ.get("TRAINING_JOB_NAME"):
        open_store(trial_prefix).put(END_MARKER, b"")


def is_s3(path: str) -> tuple[bool, str | None, str | None]:
    """Return whether a path is in S3, and its bucket and key."""
    if not path.startswith(_S3):
        return False, None, None
    bucket, _, key = path.removeprefix(_S3).partition("/")
    return True, bucket, key


def parse_bool(arg: bool | str | None, default: bool) -> bool:
    """Return a flag from a rule's parameter."""
    if arg is None or isinstance(arg, bool):
        return default if arg is None else arg
    if arg not in _FLAGS:
        raise ValueError(f"boolean argument expected, but found {arg}")
    return _FLAGS[arg]


def parse_list_from_str(arg: str | list[str] | None, delimiter: str = ",") -> list[str]:
    """Return the items of a rule's list parameter."""
    if not arg:
        return []
    return arg.split(delimiter) if isinstance(arg, str) else list(arg)


def str_to_mode_keys(mode_str: str) -> ModeKeys:
    """Return a mode by its name in lower case."""
    for mode in ModeKeys:
        if mode.name.lower() == mode_str:
            return mode
    names = ", ".join(mode.name.lower() for mode in ModeKeys)
    raise ValueError(f"Invalid mode {mode_str!r}: one of {names} is expected")
