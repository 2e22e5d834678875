"""The original's names in the processes that a script starts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from rule_runtime.child_processes import ALIAS_VARIABLE, REPLACING, prepared_path

__all__ = ["aliased_child_processes"]


@contextmanager
def aliased_child_processes(*, replace: bool) -> Iterator[None]:
    """Let the original's names mean ours in every Python that is started meanwhile.

    A worker that is spawned imports the script anew, in a process that nobody prepared.

    Args:
        replace: True to hide a real `smdebug` there too.
    """
    wanted = {"PYTHONPATH": prepared_path(), ALIAS_VARIABLE: REPLACING if replace else "1"}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
