"""The parts of the benchmark and their programs."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import Final

from benchmarks.detection.program import Program
from benchmarks.detection.script import script_program

__all__ = ["PARTS", "load_program", "program_names"]

_SCRIPTS: Final = "tutorials"
_ONE_FILE: Final = "unusual"
"""A part whose programs are the `PROGRAMS` of one module."""
PARTS: Final = ("calibration", "regression", _SCRIPTS, _ONE_FILE)

_FOLDER: Final = Path(__file__).resolve().parent


def program_names(part: str) -> list[str]:
    """Return the names of the programs of one part: its modules."""
    if part == _ONE_FILE:
        return list(_programs())
    return [module.name for module in pkgutil.iter_modules([str(_FOLDER / part)])]


def load_program(part: str, name: str) -> Program:
    """Return a program: the `train` of its module, or the module itself run as a script."""
    if part == _ONE_FILE:
        return _programs()[name]
    if part == _SCRIPTS:
        return script_program(_FOLDER / part / f"{name}.py")
    program: Program = importlib.import_module(f"benchmarks.detection.{part}.{name}").train
    return program


def _programs() -> dict[str, Program]:
    module = importlib.import_module(f"benchmarks.detection.{_ONE_FILE}")
    programs: dict[str, Program] = module.PROGRAMS
    return programs
