"""Index files by name and by step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final

from rule_runtime.trial.step_index import StepFile

__all__ = ["FILES_AT_ONCE", "FileName", "by_step", "chunks", "name_of"]

FILES_AT_ONCE: Final = 256
"""Index files that are asked for in one go."""

FileName = tuple[int, str]
"""Step and worker, which name an index file."""


def name_of(file: StepFile) -> FileName:
    """Return step and worker of a file.

    Args:
        file: The file.
    """
    return file.step, file.worker


def by_step(files: Iterable[StepFile]) -> Iterator[tuple[int, Iterator[StepFile]]]:
    """Yield the files of each step.

    Args:
        files: The files in step order.
    """
    return groupby(files, key=lambda file: file.step)


def chunks(names: Iterable[FileName]) -> Iterator[list[FileName]]:
    """Yield the names in lists of about `FILES_AT_ONCE`; a step's names stay together.

    Args:
        names: The names in step order.
    """
    chunk: list[FileName] = []
    for _, of_step in groupby(names, key=lambda name: name[0]):
        chunk.extend(of_step)
        if len(chunk) >= FILES_AT_ONCE:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
