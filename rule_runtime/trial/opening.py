"""Opens a trial by its path."""

from __future__ import annotations

import logging
import os
from numbers import Real
from pathlib import PurePath
from typing import Final, TypeAlias
from urllib.parse import unquote

from hook_layer.storage.base import Store, open_store
from rule_runtime.trial.sessions import one_run_at
from rule_runtime.trial.trial import Trial

__all__ = ["LocalTrial", "S3Trial", "create_trial", "trial_store"]

_logger: Final = logging.getLogger("stepwatch")

_Range: TypeAlias = "tuple[int | None, int | None]"


class LocalTrial(Trial):
    """A trial in a local folder; for the arguments see `create_trial`."""

    def __init__(  # noqa: PLR0917 - the original's arguments
        self,
        name: str,
        dirname: str | os.PathLike[str],
        range_steps: _Range | None = None,
        parallel: bool = True,
        check: bool | str = False,
        index_mode: bool = True,
        cache: bool = False,
    ) -> None:
        del parallel, check, index_mode
        folder = os.path.expanduser(os.fspath(dirname))  # noqa: PTH111 - stays as it was given
        _check_folder(folder, folder)
        _announce(name, folder, range_steps)
        super().__init__(open_store(folder), name=name, range_steps=range_steps, cache=cache)
        self.path = self.trial_dir = folder


class S3Trial(Trial):
    """A trial under a prefix of a bucket; for the arguments see `create_trial`."""

    def __init__(  # noqa: PLR0917 - the original's arguments
        self,
        name: str,
        bucket_name: str,
        prefix_name: str,
        range_steps: _Range | None = None,
        check: bool | str = False,
        index_mode: bool = True,
        cache: bool = False,
    ) -> None:
        del check, index_mode
        uri = f"s3://{bucket_name}/{prefix_name}"
        _announce(name, uri, range_steps)
        super().__init__(open_store(uri), name=name, range_steps=range_steps, cache=cache)
        self.bucket_name = bucket_name
        self.prefix_name = self.path.partition("://")[2].partition("/")[2]


def create_trial(
    path: str | os.PathLike[str],
    name: str | None = None,
    profiler: bool = False,
    output_dir: str = "/opt/ml/processing/outputs/",
    *,
    range_steps: _Range | None = None,
    parallel: bool = True,
    check: bool | str = False,
    index_mode: bool = True,
    cache: bool = False,
    wait_s: float = 0.0,
) -> Trial:
    """Open the trial at a folder or an `s3://` URI; logs a warning if nothing is stored there.

    Args:
        path: Folder or URI of the trial's root, or of a session with one run.
        name: Name of the trial; by default, the last part of the path.
        profiler: Not supported; must be False.
        output_dir: Accepted for compatibility; trials are read only.
        range_steps: Global steps to look at, from the first to before the second; None for no
            limit.
        parallel: Accepted for compatibility; remote files are always read in parallel.
        check: Accepted for compatibility; existing checksums are always verified.
        index_mode: Accepted for compatibility; trials are always read by their index.
        cache: True to keep values that were read in memory.
        wait_s: Seconds to wait for the collections files of all workers, which hooks write with
            their first step.

    Raises:
        TypeError: If the range is not a pair of steps.
        ValueError: If `profiler` is set, the path is empty, a file, a session of several runs or a
            folder of sessions, the range is empty or negative, or no store supports the URI.
        StorageError: If the storage cannot be read.
        MissingCollectionFiles: If the training ended while `wait_s` applied, without these files.
    """
    del output_dir, parallel, check, index_mode
    if profiler:
        raise ValueError("create_trial: profiler trials are not supported; leave profiler False")
    text = os.fspath(path).strip()
    _check_path(text)
    text = one_run_at(text)
    scheme, has_scheme, rest = text.partition("://")
    if name is None:
        name = PurePath(text.rstrip("/")).name
    trial: Trial
    if not has_scheme:
        trial = LocalTrial(name, text, range_steps, cache=cache)
    elif scheme == "s3":
        bucket, _, prefix = rest.partition("/")
        trial = S3Trial(name, bucket, prefix, range_steps, cache=cache)
    else:
        _announce(name, text, range_steps)
        trial = Trial(open_store(text), name=name, range_steps=range_steps, cache=cache)
    if wait_s > 0:
        trial.wait_for_collections(wait_s)
    if not trial.has_begun:
        _logger.warning("nothing was found at %s so far; is the path right?", trial.path)
    return trial


def trial_store(path: str | os.PathLike[str]) -> Store:
    """Return the root of the trial at a folder or a URI, checked as `create_trial` does.

    Raises:
        ValueError: If the path is empty or a file, or no store supports the URI.
    """
    text = os.fspath(path).strip()
    _check_path(text)
    return open_store(os.path.expanduser(text))  # noqa: PTH111 - may be a URI


def _check_path(text: str) -> None:
    scheme, has_scheme, rest = text.partition("://")
    if scheme == "file" or not has_scheme:
        folder = unquote(rest) if has_scheme else text
        _check_folder(os.path.expanduser(folder), text)  # noqa: PTH111 - stays as it was given


def _check_folder(folder: str, given: str) -> None:
    """Refuse a path that cannot be the folder of a trial."""
    if not folder.strip():
        raise ValueError(
            f"create_trial: the path is empty: {given!r}; give the folder that the hook writes to, "
            "'.' for the working directory"
        )
    if os.path.isfile(folder.rstrip("/")):  # noqa: PTH113 - a text, as it was given
        raise ValueError(
            f"create_trial: {given!r} is a file; give the folder that the hook writes to"
        )


def _announce(name: str, path: str, range_steps: _Range | None) -> None:
    """Check a range, and log which trial is read, as the original does."""
    must = (
        f"create_trial: range_steps is {range_steps!r}, but must be (begin, end) with "
        "0 <= begin < end; None for no limit"
    )
    if range_steps is not None and not _is_pair_of_steps(range_steps):
        raise TypeError(must)
    begin, end = range_steps or (None, None)
    if (begin or 0) < 0 or (end is not None and end <= (begin or 0)):
        raise ValueError(must)
    if begin is not None and end is not None:
        _logger.info("Trial %s will look for steps between %s and %s", name, begin, end)
    _logger.info("Loading trial %s at path %s", name, path)


def _is_pair_of_steps(given: object) -> bool:
    return (
        isinstance(given, (tuple, list))
        and len(given) in {0, 2}  # () also means no limit
        and all(isinstance(step, (Real, type(None))) for step in given)
    )
