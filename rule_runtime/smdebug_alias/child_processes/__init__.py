"""A folder for `PYTHONPATH`: any Python that finds it there runs its `sitecustomize` first."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

__all__ = ["REPLACE", "aliased_child_processes"]

REPLACE: Final = "STEPWATCH_SMDEBUG_ALIAS_REPLACE"
"""Variable that is set where a real `smdebug` is to be hidden."""

_SEARCHED: Final = "PYTHONPATH"


@contextmanager
def aliased_child_processes(*, replace: bool) -> Iterator[None]:
    """Let the original's names mean ours in every Python that is started meanwhile.

    A worker that is spawned imports the script anew, in a process that nobody prepared.

    Args:
        replace: True to hide a real `smdebug` there too.
    """
    before = {name: os.environ.get(name) for name in (_SEARCHED, REPLACE)}
    folder = str(Path(__file__).parent)
    others = [one for one in (before[_SEARCHED] or "").split(os.pathsep) if one not in ("", folder)]
    os.environ[_SEARCHED] = os.pathsep.join([folder, *others])
    if replace:
        os.environ[REPLACE] = "1"
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
