"""Imported when a Python starts that is to have the original's names; installs them at once."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

from rule_runtime.smdebug_alias import AliasError, install

__all__ = ["REPLACING", "VARIABLE"]

VARIABLE: Final = "STEPWATCH_SMDEBUG_ALIAS"
"""Variable that says whether a real `smdebug` must be hidden."""
REPLACING: Final = "replace"
"""Its value where it is."""


if VARIABLE in os.environ:
    with suppress(AliasError):  # another Python, with the real one
        install(replace=os.environ[VARIABLE] == REPLACING)
