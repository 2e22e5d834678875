"""Determines where a hook writes tensors, TensorBoard files and the state beside checkpoints.

The hook's own arguments come first, then a configuration file
(`hook_layer.configuration.configuration_file`), then SageMaker's defaults.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hook_layer.configuration.configuration_file import read_json_object
from hook_layer.configuration.job import (
    CheckpointConfig,
    HookTargets,
    JobConfiguration,
    OutputPaths,
    is_training_job,
    job_name,
)
from hook_layer.configuration.json_values import as_text, refuse
from hook_layer.errors import ConfigurationFileNotFoundError, HookConfigurationError
from hook_layer.format.paths import job_name_of
from hook_layer.storage.base import Store, open_store
from hook_layer.storage.mirror import MirrorStore

__all__ = ["Outputs", "job_root", "output_paths", "resolve_targets"]

logger = logging.getLogger("stepwatch")

_SLIP: Final = re.compile(r"(?P<scheme>s3|file|memory)(:/?|//)(?=[^:])", re.IGNORECASE)
"""`s3://` and similar with a missing character."""

_DEBUG_LEAF: Final = "debug-output"
_TENSORBOARD_LEAF: Final = "tensorboard-output"
_TENSORBOARD_VARIABLE: Final = "TENSORBOARD_CONFIG_FILE_PATH"
_CHECKPOINT_VARIABLE: Final = "CHECKPOINT_CONFIG_FILE_PATH"

# Default paths of SageMaker.
_TENSORBOARD_FILE = "/opt/ml/input/config/tensorboardoutputconfig.json"
_CHECKPOINT_FILE = "/opt/ml/input/config/checkpointconfig.json"
_OUT_DIR = "/opt/ml/output/tensors"
_TENSORBOARD_DIR = "/opt/ml/output/tensorboard"
_CHECKPOINT_DIR = "/opt/ml/checkpoints"


@dataclass(frozen=True)
class Outputs:
    """Output configuration, from the hook's arguments or its part of a file.

    Attributes:
        out_dir: A folder or URI; None if not configured.
        export_tensorboard: Whether TensorBoard files are written.
        tensorboard_dir: A folder or URI for TensorBoard files; implies that they are written.
        by_file: Whether these values come from a configuration file.
    """

    out_dir: str | None = None
    export_tensorboard: bool = False
    tensorboard_dir: str | None = None
    by_file: bool = False


def resolve_targets(
    outputs: Outputs, job: JobConfiguration, environ: Mapping[str, str] = os.environ
) -> HookTargets:
    """Return where a hook writes.

    Raises:
        HookConfigurationError: No output location is configured, or a path is invalid.
    """
    root = _root(outputs, job, environ)
    out = root.open()
    if out.uri.startswith("file:"):
        _warn_of_local_output(out.uri, outputs, job, environ)
    tensorboard = _tensorboard(root, outputs, job, environ)
    return HookTargets(
        out,
        None if tensorboard is None else tensorboard.open(),
        _checkpoint(job, environ),
        root.path,
        None if tensorboard is None else tensorboard.path,
    )


def output_paths(name: str, members: Mapping[str, Any], *s3_keys: str) -> OutputPaths:
    """Return the paths in a JSON object.

    Args:
        name: Name of the object in messages, ending in "." if it has one.
        members: The object.
        s3_keys: Keys of the path in S3; the first given one counts.

    Raises:
        HookConfigurationError: A path is not a string, or the S3 path is no URI or absolute path.
    """
    s3 = [_as_uri(f"{name}{key}", members[key]) for key in s3_keys if members.get(key) is not None]
    local = members.get("LocalPath")
    return OutputPaths(
        s3[0] if s3 else None, None if local is None else as_text(f"{name}LocalPath", local)
    )


def _as_uri(name: str, value: object) -> str:
    text = as_text(name, value)
    if "://" not in text and not text.startswith("/"):
        slip = _SLIP.match(text)
        below = (text[slip.end() :] if slip else text).lstrip("/")
        refuse(name, value, f"must be a URI: did you mean 's3://{below}'?")
    return text


@dataclass(frozen=True)
class _Place:
    """An output location.

    Attributes:
        uri: A path or URI.
        copy: A folder that gets a copy of everything.
        named_by: Setting that names the location, for errors.
    """

    uri: str
    copy: str | None = None
    named_by: str = "out_dir"

    @property
    def path(self) -> str:
        """The path or URI, with "~" expanded."""
        return _without_tilde(self.uri)

    def child(self, name: str) -> _Place:
        """Return a subfolder of this location."""
        copy = None if self.copy is None else f"{self.copy.rstrip('/')}/{name}"
        return _Place(f"{self.uri.rstrip('/')}/{name}", copy, self.named_by)

    def open(self) -> Store:
        """Open the store at this location.

        Raises:
            HookConfigurationError: A location of this name cannot store data.
        """
        store = self._store(self.uri)
        return store if self.copy is None else MirrorStore(store, self._store(self.copy))

    def _store(self, uri: str) -> Store:
        if not uri.isprintable():
            raise HookConfigurationError(
                f"{self.named_by}={uri!r} has unprintable characters; remove them"
            )
        if "://" not in uri and (slip := _SLIP.match(uri)):
            meant = f"{slip['scheme'].lower()}://{uri[slip.end() :].lstrip('/')}"
            raise HookConfigurationError(
                f"{self.named_by}={uri!r} is a local folder: did you mean {meant!r}? Write "
                "'./...' for a folder of this name."
            )
        try:
            return open_store(_without_tilde(uri))
        except ValueError as error:
            raise HookConfigurationError(f"{self.named_by}={uri!r}: {error}") from error


def _without_tilde(uri: str) -> str:
    return uri if "://" in uri else os.path.expanduser(uri)  # noqa: PTH111


def _place_of_output(
    output: OutputPaths, leaf: str, environ: Mapping[str, str], configuration: JobConfiguration
) -> _Place | None:
    """Return where one kind of output goes according to a configuration file; None if unset.

    Args:
        output: The paths for this output in the file.
        leaf: The last part of its path below `S3OutputPath` and the job's name.
        environ: The environment.
        configuration: The rest of the file.

    Raises:
        HookConfigurationError: A path requires the job's name, which is unknown.
    """
    if output.s3 is None or not configuration.writes_to_s3:
        named_by = f"{configuration.source}: LocalPath"
        return None if output.local is None else _Place(output.local, None, named_by)
    root = job_root(output.s3, job_name(environ, configuration), leaf)
    if root is None:
        raise HookConfigurationError(
            f"{configuration.source}: S3OutputPath={output.s3!r} needs the name of the job, "
            f"because files go to <name>/{leaf}/. Set TrainingJobName in the file, or the "
            "variable TRAINING_JOB_NAME."
        )
    return _Place(root, output.local, f"{configuration.source}: S3OutputPath or LocalPath")


def job_root(path: str, name: str | None, leaf: str) -> str | None:
    """Return `path`, completed to end in `/{name}/{leaf}/`.

    Args:
        path: A path or URI, as in `S3OutputPath`.
        name: The job's name; None if unknown.
        leaf: The last part, e.g. `debug-output`.

    Returns:
        The path; None if the name is unknown and `path` does not end in a folder's `leaf`.
    """
    scheme, separator, rest = path.strip().rpartition("://")
    parts = [part for part in rest.split("/") if part]
    below_bucket = parts if scheme in ("", "file") else parts[1:]
    missing: list[str] = []
    if name is None:
        if below_bucket[-1:] != [leaf] or below_bucket == [leaf]:
            return None
    elif below_bucket[-2:] == [name, leaf]:
        missing = []
    elif job_name_of("/".join(below_bucket)) == name and below_bucket[-1] != _DEBUG_LEAF:
        missing = [leaf]
    else:
        missing = [name, leaf]
    start = "/" if rest.startswith("/") else ""
    return f"{scheme}{separator}{start}{'/'.join([*parts, *missing])}/"


def _root(outputs: Outputs, job: JobConfiguration, environ: Mapping[str, str]) -> _Place:
    if outputs.out_dir is not None and outputs.out_dir.strip():
        return _Place(outputs.out_dir.strip())
    place = _place_of_output(job.debug_output, _DEBUG_LEAF, environ, job)
    if place is not None:
        return place
    if is_training_job(environ) or (outputs.by_file and not job.writes_to_s3):
        return _Place(_OUT_DIR)
    if job.source:
        raise HookConfigurationError(
            f"{job.source} has neither S3OutputPath nor LocalPath; set one of them in its "
            "DebugHookConfig, or pass out_dir to the hook"
        )
    raise HookConfigurationError(
        "out_dir is missing; give a folder or an s3://bucket/prefix, e.g. Hook('runs/mnist-1')"
    )


def _warn_of_local_output(
    uri: str, outputs: Outputs, job: JobConfiguration, environ: Mapping[str, str]
) -> None:
    if environ.get("TRAINING_JOB_ARN", "").strip():
        logger.warning(
            "tensors are written to %s only, and no rule evaluates them unless SageMaker "
            "Debugger copies them. Name a file with S3OutputPath in STEPWATCH_CONFIG, or "
            "set out_dir='s3://...'.",
            uri,
        )
    elif outputs.by_file and job.debug_output.s3 is not None and not job.writes_to_s3:
        logger.warning(
            "tensors are written to %s, not to S3OutputPath=%s, which SageMaker copies to. "
            "To write there directly, set STEPWATCH_CONFIG to %s.",
            uri,
            job.debug_output.s3,
            job.source,
        )


def _tensorboard(
    root: _Place, outputs: Outputs, job: JobConfiguration, environ: Mapping[str, str]
) -> _Place | None:
    wanted = None
    if outputs.tensorboard_dir is not None:
        wanted = _Place(outputs.tensorboard_dir, None, "tensorboard_dir")
    elif outputs.export_tensorboard:
        wanted = root.child("tensorboard")
    if not outputs.by_file:
        return wanted
    paths = job.tensorboard_output
    if paths is not None:
        place = _place_of_output(paths, _TENSORBOARD_LEAF, environ, job)
        return place or _Place(_TENSORBOARD_DIR)
    variable = environ.get(_TENSORBOARD_VARIABLE, "").strip()
    if not variable and not is_training_job(environ):
        return wanted
    paths = _paths_in(variable or _TENSORBOARD_FILE, "S3OutputPath")
    if paths is not None:
        return _Place(paths.local or _TENSORBOARD_DIR, None, "LocalPath")
    if wanted is not None or variable:
        logger.warning(
            "no TensorBoard files are written: in a training job, request them with %s "
            "(%s) or with TensorBoardOutputConfig in STEPWATCH_CONFIG",
            _TENSORBOARD_VARIABLE,
            variable or _TENSORBOARD_FILE,
        )
    return None


def _checkpoint(job: JobConfiguration, environ: Mapping[str, str]) -> CheckpointConfig | None:
    """Return where checkpoints are; the platform's location wins over the configuration's."""
    paths = _paths_in(environ.get(_CHECKPOINT_VARIABLE, "").strip() or _CHECKPOINT_FILE, "S3Uri")
    if paths is not None:
        is_copied = bool(environ.get("TRAINING_JOB_ARN", "").strip())  # SageMaker does it
        s3_uri = None if is_copied else paths.s3
        return CheckpointConfig(Path(paths.local or _CHECKPOINT_DIR), s3_uri)
    if job.checkpoint is not None:
        return CheckpointConfig(Path(job.checkpoint.local or _CHECKPOINT_DIR), job.checkpoint.s3)
    if is_training_job(environ) and Path(_CHECKPOINT_DIR).is_dir():
        return CheckpointConfig(Path(_CHECKPOINT_DIR))
    return None


def _paths_in(path: str, s3_key: str) -> OutputPaths | None:
    """Return the paths in a file of the platform; None if it does not exist."""
    try:
        return output_paths(f"{path}: ", read_json_object(path, path), s3_key)
    except ConfigurationFileNotFoundError:
        return None
