"""Names of the files of a trial, as keys relative to the trial's root."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from hook_layer.format.errors import PathError

__all__ = [
    "COLLECTIONS_PREFIX",
    "END_MARKER",
    "ENVIRONMENT_FILE",
    "INDEX_PREFIX",
    "JOB_FILE",
    "STOP_FILE",
    "IndexName",
    "collections_key",
    "event_key",
    "index_key",
    "is_event_key",
    "job_name_of",
    "parse_collections_key",
    "parse_index_key",
    "split_object_key",
]

END_MARKER: Final = "training_job_end.ts"
"""Written when training ends, see `end_marker.py`."""
ENVIRONMENT_FILE: Final = "environment.json"
"""What a run was, see `hook_layer/run/environment.py`."""
JOB_FILE: Final = "job.json"
STOP_FILE: Final = "stop.json"
INDEX_PREFIX: Final = "index/"
COLLECTIONS_PREFIX: Final = "collections/"
_STEPS_PER_INDEX_FOLDER: Final = 1000
_MAX_WORKERS: Final = 64
"""Number of cached worker names."""

_WORKER = r"(?P<worker>[^/\\\x00-\x1f]{1,255})"
_INDEX_KEY = re.compile(rf"index/[0-9]{{9,16}}/(?P<step>[0-9]{{12,18}})_{_WORKER}\.json")
_EVENT_KEY = re.compile(rf"events/[0-9]{{12,18}}/(?P<step>[0-9]{{12,18}})_{_WORKER}\.tfevents")
_COLLECTIONS_KEY = re.compile(rf"collections/[0-9]{{9,16}}/{_WORKER}_collections\.(?:json|ts)")
_RUN_FOLDER = re.compile(r"run-[1-9][0-9]{0,8}")
_ROOT_FILES = (END_MARKER, JOB_FILE, STOP_FILE)


@dataclass(frozen=True)
class IndexName:
    """Parsed name of an index file."""

    step: int
    worker: str


def event_key(step: int, worker: str) -> str:
    """Return the key of the event file of a global step and worker."""
    return f"events/{step:012d}/{step:012d}_{_worker_in_file(worker)}.tfevents"


def index_key(step: int, worker: str) -> str:
    """Return the key of the index file of a global step and worker."""
    folder = step // _STEPS_PER_INDEX_FOLDER
    return f"{INDEX_PREFIX}{folder:09d}/{step:012d}_{_worker_in_file(worker)}.json"


def collections_key(worker: str) -> str:
    """Return the key of a worker's collections file."""
    return f"{COLLECTIONS_PREFIX}{0:09d}/{_worker_in_file(worker)}_collections.json"


def parse_index_key(key: str) -> IndexName:
    """Return step and worker of an index file's key.

    Raises:
        PathError: `key` is not the name of an index file.
    """
    match = _match(_INDEX_KEY, key)
    if match is None:
        raise PathError("not the name of an index file", file=key)
    return IndexName(int(match["step"]), _worker_from_file(match["worker"]))


def parse_collections_key(key: str) -> str:
    """Return the worker of a collections file's key.

    Raises:
        PathError: `key` is not the name of a collections file.
    """
    match = _match(_COLLECTIONS_KEY, key)
    if match is None:
        raise PathError("not the name of a collections file", file=key)
    return _worker_from_file(match["worker"])


def is_event_key(key: str) -> bool:
    """Return whether `key` is the name of an event file, and therefore inside the trial."""
    return _match(_EVENT_KEY, key) is not None


def split_object_key(key: str) -> tuple[str, str]:
    """Split an object's key into the trial's root (ending in "/", or empty) and the key inside it.

    Raises:
        PathError: It is not an index file, end marker, `job.json` or `stop.json` of a trial.
    """
    root, found, rest = key.rpartition("/index/")
    relative = f"{INDEX_PREFIX}{rest}" if found else ""
    if not found and key.startswith(INDEX_PREFIX):
        root, relative = "", key
    if relative and _match(_INDEX_KEY, relative):
        return (f"{root}/" if found else ""), relative
    folder, slash, name = key.rpartition("/")
    if name in _ROOT_FILES:
        return f"{folder}{slash}", name
    raise PathError("not an index file, an end marker or a job file of a trial", file=key)


def job_name_of(root: str) -> str:
    """Return the job's name: the last part of the root, ignoring a final `debug-output`.

    The root is a URI, path or key prefix. A run of a session (`run-2`) is prefixed with the
    session's name: `train-run-2`.
    """
    parts = [part for part in root.replace("\\", "/").split("/") if part not in ("", ".")]
    if len(parts) > 1 and parts[-1] == "debug-output":
        parts.pop()
    is_of_session = len(parts) > 1 and _RUN_FOLDER.fullmatch(parts[-1]) is not None
    return "-".join(parts[-2:] if is_of_session else parts[-1:])


def _match(pattern: re.Pattern[str], key: str) -> re.Match[str] | None:
    # A name of the format is also a valid key of every store.
    return pattern.fullmatch(key) if key.isprintable() else None


@lru_cache(maxsize=_MAX_WORKERS)
def _worker_in_file(worker: str) -> str:
    # TensorFlow device names ("/job:worker/replica:0") are workers, too.
    name = worker.replace("/", "_").replace(":", "-") if worker.startswith("/") else worker
    if re.fullmatch(_WORKER, name) is None or not name.isprintable():
        raise PathError(f"worker name {worker!r} cannot be part of a file name")
    return name


def _worker_from_file(name: str) -> str:
    return name.replace("_", "/").replace("-", ":") if name.startswith("_") else name
