"""Runs when Python starts with this folder in its `PYTHONPATH`.

It imports the modules that a variable names. Then it removes this folder from the path, and runs
the `sitecustomize` that it hides. It uses only old syntax and no other modules of Stepwatch,
because the Python may be old and without Stepwatch.
"""

import os
import sys

_FOLDER = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - imports nothing


class _Teller:
    """Reports once per command that a framework is imported in a Python without Stepwatch."""

    def __init__(self, notes: str) -> None:
        self._notes = notes
        try:
            with open(os.path.join(notes, "frameworks")) as file:  # noqa: PTH118, PTH123 - see above
                self._frameworks = frozenset(file.read().split())
        except OSError:
            self._frameworks = frozenset()

    def find_spec(self, name: str, *_: object) -> None:
        if name in self._frameworks:
            self._frameworks = frozenset()
            self._report()

    def _report(self) -> None:
        try:
            with open(os.path.join(self._notes, "lacking"), "x") as file:  # noqa: PTH118, PTH123
                file.write(sys.executable)
        except OSError:  # another process has reported it
            return
        sys.stderr.write(
            f"stepwatch: {sys.executable} has no stepwatch installed: the run continues unwatched\n"
        )


def _start() -> None:
    try:
        import hook_layer  # noqa: F401, PLC0415 - may be missing
    except Exception:  # noqa: BLE001 - it may also be too old for it
        notes = os.environ.get("STEPWATCH_RUN_NOTES")
        if notes:
            sys.meta_path.insert(0, _Teller(notes))
        return
    names = os.environ.get("STEPWATCH_STARTUP", "")
    if not names:
        return
    import importlib  # noqa: PLC0415 - every start of Python pays for it

    for name in filter(None, names.split(",")):
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001, PERF203 - no script may be broken by its start
            sys.stderr.write(
                f"stepwatch: {name} cannot be imported; the script runs without a hook: {error}\n"
            )


if __name__ == "sitecustomize":
    _start()
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != _FOLDER]  # noqa: PTH100
    del sys.modules["sitecustomize"]
    # Python expects this error if there is none.
    import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
