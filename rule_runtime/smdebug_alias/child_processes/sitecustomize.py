"""Run by Python when it starts, because this folder is in its `PYTHONPATH`."""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path

__all__: list[str] = []

_FOLDER = Path(__file__).parent


def _install() -> None:
    if importlib.util.find_spec("rule_runtime") is None:
        sys.path.append(str(_FOLDER.parents[2]))
    try:
        from rule_runtime.smdebug_alias import install  # noqa: PLC0415 - was not to be found above
        from rule_runtime.smdebug_alias.child_processes import REPLACE  # noqa: PLC0415

        install(replace=REPLACE in os.environ)
    except ImportError:  # another Python, with the real one or without what we need
        return


def _run_the_one_that_this_hides() -> None:
    folders = [folder for folder in sys.path if Path(folder) != _FOLDER]
    spec = PathFinder.find_spec("sitecustomize", folders)
    if spec is not None and spec.loader is not None:
        module = sys.modules["sitecustomize"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    _install()
    _run_the_one_that_this_hides()
