"""The page about speed: the table of a run of the benchmarks, and where it was measured."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from benchmarks.result import Result, shown_number
from tools.generated_text import replaced

__all__ = ["MARKS", "Machine", "write_page"]

MARKS: Final = ("<!-- benchmarks: written by `make bench` -->", "<!-- /benchmarks -->")
_ROOT: Final = Path(__file__).resolve().parent.parent
_PACKAGES: Final = ("numpy", "torch", "smdebug", "tensorboard", "wandb", "safetensors")
_HEAD: Final = (
    "what",
    "unit",
    "ours",
    "must reach",
    "aim",
    "reached",
    "limit",
    "the others",
    "times as good as the best",
)
_CPU_FILE: Final = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class Machine:
    """Where, when and with what something was measured.

    Attributes:
        cpu: Name of the processor.
        cores: Number of its cores that could be used.
        python: Version of Python.
        packages: Names and versions of packages.
        code: Short name of the commit, with `+` where files were changed since.
        day: Date, ISO 8601.
    """

    cpu: str
    cores: int
    python: str
    packages: str
    code: str
    day: str

    @classmethod
    def this(cls) -> Machine:
        """Return what this process runs on."""
        return cls(
            cpu=_cpu(),
            cores=len(os.sched_getaffinity(0)),
            python=platform.python_version(),
            packages=", ".join(filter(None, map(_named, _PACKAGES))),
            code=_code(),
            day=datetime.now(timezone.utc).date().isoformat(),
        )


def write_page(page: Path, results: Sequence[Result], machine: Machine) -> None:
    """Put a table of results in the place of the one that a page has.

    Raises:
        ValueError: The page lacks the marks.
        OSError: It cannot be read or written.
    """
    text = page.read_text(encoding="utf-8")
    content = f"{_measured_on(machine)}\n\n{_table(results)}"
    page.write_text(replaced(text, MARKS, content, name=page.name), encoding="utf-8")


def _table(results: Sequence[Result]) -> str:
    lines = [f"| {' | '.join(_HEAD)} |", f"|{'---|' * len(_HEAD)}"]
    for result in results:
        ours, must, aim, limit = map(
            shown_number, (result.ours.median, result.must, result.aim, result.limit)
        )
        ratio = "" if result.ratio is None else f"{result.ratio:.3g}"
        cells = [result.row, result.unit, f"**{ours}**", must, aim, result.reaches, limit]
        cells += [result.shown_peers, ratio]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _measured_on(machine: Machine) -> str:
    return (
        f"Measured on {machine.day}, commit {machine.code}: {machine.cpu}, {machine.cores} cores, "
        f"Python {machine.python}, {machine.packages}."
    )


def _cpu() -> str:
    if _CPU_FILE.is_file():
        for line in _CPU_FILE.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def _named(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return ""


def _code() -> str:
    command = ["git", "describe", "--always", "--dirty=+"]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
