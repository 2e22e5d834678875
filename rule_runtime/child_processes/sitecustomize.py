"""Run by Python when it starts, because this folder is in its `PYTHONPATH`.

It may be a Python in which nothing of ours is installed: nothing is imported before that is known.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path

__all__: list[str] = []

_FOLDER = Path(__file__).resolve().parent
_NOTES = "STEPWATCH_RUN_NOTES"
_ALIAS = "STEPWATCH_SMDEBUG_ALIAS"


def _install_alias() -> None:
    if importlib.util.find_spec("rule_runtime") is None:
        sys.path.append(str(_FOLDER.parents[1]))
    try:
        from rule_runtime.child_processes import REPLACING  # noqa: PLC0415 - was not to be found
        from rule_runtime.smdebug_alias import install  # noqa: PLC0415 - as above

        install(replace=os.environ[_ALIAS] == REPLACING)
    except ImportError:  # another Python, with the real one or without what we need
        return


def _watch() -> None:
    if importlib.util.find_spec("hook_layer") is None:
        sys.meta_path.insert(0, _Teller(Path(os.environ[_NOTES])))
        return
    try:
        import hook_layer.autopatch.startup  # noqa: F401, PLC0415 - see above
    except Exception as error:  # noqa: BLE001 - no script may be broken by its start
        sys.stderr.write(f"stepwatch: nothing is watched: {error}\n")


class _Teller:
    """Tells once, of all Pythons of a command, that a framework is imported and nobody watches."""

    def __init__(self, notes: Path) -> None:
        self._notes = notes
        try:
            self._frameworks = frozenset((notes / "frameworks").read_text().split())
        except OSError:
            self._frameworks = frozenset()

    def find_spec(self, name: str, *_: object) -> None:
        if name in self._frameworks:
            self._frameworks = frozenset()
            self._tell()

    def _tell(self) -> None:
        try:
            with (self._notes / "lacking").open("x") as file:
                file.write(sys.executable)
        except OSError:  # another one has told it
            return
        sys.stderr.write(
            f"stepwatch: {sys.executable} is a Python in which stepwatch is not installed: "
            "the training goes on unwatched\n"
        )


def _run_the_one_that_this_hides() -> None:
    """Run the next `sitecustomize` of the path, which Python would have without us."""
    ours = [at for at, folder in enumerate(sys.path) if Path(folder).resolve() == _FOLDER]
    spec = PathFinder.find_spec("sitecustomize", sys.path[max(ours, default=-1) + 1 :])
    if spec is not None and spec.loader is not None:
        module = sys.modules["sitecustomize"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    if _ALIAS in os.environ:
        _install_alias()
    if _NOTES in os.environ:
        _watch()
    _run_the_one_that_this_hides()
