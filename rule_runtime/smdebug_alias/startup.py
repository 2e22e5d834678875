"""Installs the original's names when Python starts."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Final

from rule_runtime.smdebug_alias import AliasError, install

__all__ = ["REPLACING", "VARIABLE"]

VARIABLE: Final = "STEPWATCH_SMDEBUG_ALIAS"
"""Variable that states whether to hide a real `smdebug`."""
REPLACING: Final = "replace"
"""The value for hiding it."""


if VARIABLE in os.environ:
    with suppress(AliasError):  # another Python, with the real one
        install(replace=os.environ[VARIABLE] == REPLACING)
