"""What RESULTS.md says, how the runs came about and each part in short; and the file of a part."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

from benchmarks.detection.digests import digest_of_rules
from benchmarks.detection.faults import BY_CONSTRUCTION, FAULTS
from benchmarks.detection.fitting import FITTING
from benchmarks.detection.parts import PARTS, load_program, program_names
from benchmarks.detection.report import Packs, Table, summary, tables
from benchmarks.detection.scores import HARM, Judged

__all__ = ["overview", "part_results"]

_LIBRARIES: Final = ("torch", "xgboost-cpu", "scikit-learn", "numpy")
_TITLES: Final = {
    "fifteenth_held_out": "Fifteenth held-out set",
    "earlier_held_out": "Programs of earlier held-out sets",
    "calibration": "Calibration programs",
    "tutorials": "Healthy scripts in the manner of tutorials",
    "unusual": "Healthy programs that look unusual",
}

_TEXTS: Final = Path(__file__).resolve().parent / "texts"


def part_results(part: str, runs: Sequence[Judged], packs: Packs) -> str:
    """Return the text of the file of one part: its numbers in short, its programs, all tables.

    Args:
        part: One of `PARTS`.
        runs: All runs of the part.
        packs: Keys of the rules of each pack.
    """
    short = summary(runs, packs, _TITLES[part]).as_markdown()
    text = [f"# {_TITLES[part]}\n", f"{_written_by()}\n", short, "## Programs\n"]
    text += [_programs(part, runs).as_markdown(), "## Tables\n"]
    text += [table.as_markdown() for table in tables(runs, packs)]
    return "\n".join(text)


def overview(folder: Path) -> str:
    """Return the text of RESULTS.md: what was measured how, and each part in short.

    Args:
        folder: Where the files of the parts are; a part that has none is left out.
    """
    head = _text("head").format(
        harm=HARM, by_construction=" and ".join(f"`{fault}`" for fault in BY_CONSTRUCTION)
    )
    text = [head, _text("first")]
    for part in reversed(PARTS):
        file = folder / f"{part}.md"
        if file.exists():
            short = file.read_text().split("\n## ")[0]
            _, _, measured, title, table = short.split("\n\n", 4)
            link = f"[All its tables]({folder.name}/{file.name})."
            text.append(f"{title}\n\n{measured}\n{link}\n\n{table}")
    text += [_text("limits"), "## Faults\n", _kinds().as_markdown()]
    return "\n".join(text)


def _written_by() -> str:
    versions = ", ".join(f"{name} {version(name)}" for name in _LIBRARIES)
    return (
        "Written by `python -m benchmarks.detection --write`; do not edit.\n\n"
        f"Python {platform.python_version()}, {versions}.\n"
        f"SHA-256 of the rules' code and the packs begins with {digest_of_rules()}."
    )


def _text(name: str) -> str:
    return (_TEXTS / f"{name}.md").read_text()


def _kinds() -> Table:
    rows = []
    for fault, told in FAULTS.items():
        why = BY_CONSTRUCTION.get(fault)
        shown = f"{told} (harms by construction: {why})" if why else told
        rows.append((fault, shown, ", ".join(FITTING[fault])))
    return Table("Faults, and the rules that fit them", ("fault", "what is wrong", "fit"), rows)


def _programs(part: str, runs: Sequence[Judged]) -> Table:
    rows = []
    for name in program_names(part):
        program = load_program(part, name)
        own = [run.plan.is_healthy for run in runs if run.plan.program == name]
        faults = "; ".join(f"{fault}: {told}" for fault, told in program.faults.items())
        seeds = f"{sum(own)} + {len(own) - sum(own)}"
        rows.append((name, program.model, program.data, program.measure, seeds, faults))
    head = ("program", "model", "data", "error", "healthy + faulty runs", "faults")
    return Table("Programs and their faults", head, rows)
