"""Finds and reads the file that configures a hook.

The first of these counts: a file named in the code, `STEPWATCH_CONFIG` (a path or a URI such as
`s3://bucket/stepwatch.json`), `SMDEBUG_CONFIG_FILE_PATH`, and SageMaker's default path. With
`STEPWATCH_CONFIG` the hook itself writes to `S3OutputPath`. With the others it writes to
`LocalPath`, like the original client, and an agent uploads to S3.
"""

from __future__ import annotations

import codecs
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from hook_layer.errors import ConfigurationFileNotFoundError, HookConfigurationError
from hook_layer.format.errors import FormatError
from hook_layer.format.json_document import load_object
from hook_layer.storage.base import open_store

__all__ = [
    "MAX_CONFIGURATION_BYTES",
    "OWN_VARIABLE",
    "SAGEMAKER_FILE",
    "ConfigurationFile",
    "names_file_elsewhere",
    "read_configuration_file",
    "read_json_object",
]

MAX_CONFIGURATION_BYTES: Final = 256 << 10
"""Maximum size of a configuration file; its part in `job.json` then fits there in any encoding."""

OWN_VARIABLE: Final = "STEPWATCH_CONFIG"
_ORIGINAL_VARIABLE: Final = "SMDEBUG_CONFIG_FILE_PATH"
SAGEMAKER_FILE: Final = "/opt/ml/input/config/debughookconfig.json"


@dataclass(frozen=True)
class ConfigurationFile:
    """A configuration file that was read.

    Attributes:
        document: Its content.
        name: Its name and the source of the name, for messages.
        is_own: Whether `STEPWATCH_CONFIG` names it.
    """

    document: Mapping[str, Any]
    name: str
    is_own: bool = False


def read_configuration_file(
    json_file_path: str | os.PathLike[str] | None = None, environ: Mapping[str, str] = os.environ
) -> ConfigurationFile:
    """Find and read the file that configures a hook.

    Args:
        json_file_path: The file, if the code names it.
        environ: The environment.

    Raises:
        ConfigurationFileNotFoundError: There is none. If `STEPWATCH_CONFIG` names it, this is a
            plain `HookConfigurationError`, because the user requires a hook.
        HookConfigurationError: It is unreadable, or not a JSON object.
    """
    if json_file_path is not None:
        path = os.fspath(json_file_path)
        return ConfigurationFile(read_json_object(path, path), path)
    if own := environ.get(OWN_VARIABLE, "").strip():
        name = f"{OWN_VARIABLE}={own}"
        try:
            return ConfigurationFile(read_json_object(own, name), name, is_own=True)
        except ConfigurationFileNotFoundError as error:
            raise HookConfigurationError(str(error)) from error
    if original := environ.get(_ORIGINAL_VARIABLE, "").strip():
        name = f"{_ORIGINAL_VARIABLE}={original}"
        return ConfigurationFile(read_json_object(original, name), name)
    try:
        document = read_json_object(SAGEMAKER_FILE, SAGEMAKER_FILE)
    except ConfigurationFileNotFoundError as error:
        raise ConfigurationFileNotFoundError(
            f"{error}; set {OWN_VARIABLE} or {_ORIGINAL_VARIABLE} to the configuration file"
        ) from error
    return ConfigurationFile(document, SAGEMAKER_FILE)


def names_file_elsewhere(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether a variable names a file that is not on this machine, without reading it."""
    named = environ.get(OWN_VARIABLE, "").strip() or environ.get(_ORIGINAL_VARIABLE, "").strip()
    scheme, found, _ = named.partition("://")
    return bool(found) and scheme != "file"


def read_json_object(path: str, name: str) -> dict[str, Any]:
    """Read a small file with one JSON object.

    Raises:
        ConfigurationFileNotFoundError: It does not exist.
        HookConfigurationError: It is unreadable, too long, or not a JSON object.
    """
    try:
        data = _read(path)
    except FileNotFoundError as error:
        raise ConfigurationFileNotFoundError(f"{name} does not exist") from error
    except (OSError, ValueError, ImportError) as error:
        raise HookConfigurationError(f"{name} cannot be read: {error}") from error
    data = data.removeprefix(codecs.BOM_UTF8)  # some editors for Windows write it
    if not data.strip():
        raise HookConfigurationError(f"{name} is empty; write at least {{}} into it")
    try:
        return load_object(
            data, file=name, error=FormatError, max_bytes=MAX_CONFIGURATION_BYTES, is_strict=True
        )
    except FormatError as error:
        raise HookConfigurationError(
            f"{error}; a configuration is one JSON object as in CreateTrainingJob, e.g. "
            '{"DebugHookConfig": {"S3OutputPath": "s3://bucket/prefix"}}'
        ) from error


def _read(path: str) -> bytes:
    """Read the beginning of a file, slightly more than the limit."""
    num_bytes = MAX_CONFIGURATION_BYTES + 1
    scheme, found, below = path.partition("://")
    if found and scheme != "file":
        folder, _, name = below.rpartition("/")
        if not folder:
            raise HookConfigurationError(
                "it names no object; write it as s3://bucket/stepwatch.json"
            )
        return open_store(f"{scheme}://{folder}").get(name, 0, num_bytes)
    local = Path(unquote(urlsplit(path).path) if found else path).expanduser()
    # Reading a pipe could block forever, and a device may never end.
    if not stat.S_ISREG(local.stat().st_mode):
        raise HookConfigurationError("it is not a file")
    with local.open("rb") as file:
        return file.read(num_bytes)
