"""Refuses folders without saved steps."""

from __future__ import annotations

from hook_layer.storage.base import open_store

__all__ = ["check_has_steps", "no_steps"]


def check_has_steps(path: str) -> None:
    """Refuse a path without saved steps.

    Raises:
        ValueError: No step is stored there, or the path is not a trial's.
        StorageError: The storage cannot be read.
    """
    from rule_runtime.trial.step_index import list_index_files  # noqa: PLC0415 - loads numpy

    if next(list_index_files(open_store(path)), None) is None:
        raise ValueError(no_steps(path))


def no_steps(path: str) -> str:
    """Return the message for a path without saved steps."""
    return f"{path} holds no saved step of a run; give the folder of a run, such as runs/train-1"
