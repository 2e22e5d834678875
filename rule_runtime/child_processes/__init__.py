"""A folder for `PYTHONPATH`: any Python that finds it there runs its `sitecustomize` first.

So the processes that a script or command starts are prepared as it is: watched by a hook, or with
the original client's names.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

__all__ = ["ALIAS_VARIABLE", "REPLACING", "prepared_path"]

ALIAS_VARIABLE: Final = "STEPWATCH_SMDEBUG_ALIAS"
"""Variable that is set where the original's names are to mean ours."""
REPLACING: Final = "replace"
"""Its value where a real `smdebug` is to be hidden."""


def prepared_path() -> str:
    """Return the `PYTHONPATH` with which Pythons are prepared: that of this process, and us."""
    folder = str(Path(__file__).parent)
    before = os.environ.get("PYTHONPATH", "")
    others = [one for one in before.split(os.pathsep) if one != folder] if before else []
    return os.pathsep.join([folder, *others])
