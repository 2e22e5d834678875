"""Opening a trial by its path."""

from __future__ import annotations

import os
from pathlib import PurePath

from hook_layer.storage.base import open_store
from rule_runtime.trial.trial import Trial

__all__ = ["create_trial"]


def create_trial(
    path: str | os.PathLike[str],
    name: str | None = None,
    profiler: bool = False,
    output_dir: str = "/opt/ml/processing/outputs/",
    *,
    range_steps: tuple[int | None, int | None] | None = None,
    check: bool | str = False,
    index_mode: bool = True,
    cache: bool = False,
) -> Trial:
    """Open the trial at a folder or an `s3://` URI. It need not hold anything yet.

    Args:
        path: Folder or URI of the trial's root.
        name: Name of the trial; the last part of the path unless given.
        profiler: Not supported; must be False.
        output_dir: Taken for compatibility; trials are only read.
        range_steps: Global steps to look at, from the first to before the second; None for no
            limit.
        check: Taken for compatibility; checksums are verified wherever there are any.
        index_mode: Taken for compatibility; trials are read by their index always.
        cache: True to keep the values that were read in memory.

    Raises:
        ValueError: If `profiler` is asked for, or the range is empty or negative.
        StorageError: If the storage cannot be read.
    """
    del output_dir, check, index_mode
    if profiler:
        raise ValueError("create_trial: profiler trials are not supported; leave profiler False")
    _check_range(range_steps)
    text = os.fspath(path).strip()
    return Trial(
        open_store(text),
        name=name or PurePath(text.rstrip("/")).name,
        range_steps=range_steps,
        cache=cache,
    )


def _check_range(range_steps: tuple[int | None, int | None] | None) -> None:
    begin, end = range_steps or (None, None)
    if (begin or 0) < 0 or (end is not None and end <= (begin or 0)):
        raise ValueError(
            f"create_trial: range_steps is {range_steps!r}, but must be (begin, end) with "
            "0 <= begin < end; None for no limit"
        )
