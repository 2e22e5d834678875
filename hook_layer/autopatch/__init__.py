"""Watching a training script that has no hook in it, without a change to it.

`python -m hook_layer [--config FILE] train.py ...` runs a script so; `stepwatch autopatch on`
installs a start-up file (`startup_file.py`) that does the same to every Python of an environment
for which a configuration is named. As soon as a framework has been imported, `watch_frameworks`
lets its adapter look for the training: `hook_layer.pytorch.unchanged`, and the like.

Three promises: nothing happens where no configuration is found; a script that makes a hook itself
keeps it, and gets no second one; whatever goes wrong here is logged and leaves the script alone.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from hook_layer.autopatch.hook_source import HookSource
from hook_layer.autopatch.imports import call_after_import

__all__ = ["FRAMEWORKS", "HookSource", "watch_frameworks"]

logger = logging.getLogger("stepwatch")

FRAMEWORKS: Final = {"torch": "pytorch", "xgboost": "xgboost"}
"""Package of each framework, and the part of `hook_layer` that is for it."""


def watch_frameworks(source: HookSource) -> None:
    """Look for trainings of every framework that is imported, now or later.

    Args:
        source: Where hooks come from.
    """
    for package, adapter in FRAMEWORKS.items():
        call_after_import(package, partial(_watch, adapter, source))


def _watch(adapter: str, source: HookSource) -> None:
    try:
        module = importlib.import_module(f"hook_layer.{adapter}.unchanged")
        watch: Callable[[HookSource], None] = module.watch_unchanged
        watch(source)
    except Exception:
        logger.exception("no hook looks at trainings of %s: the script runs as it is", adapter)
