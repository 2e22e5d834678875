"""What RESULTS.md says: how the runs came about, what was left out, and the tables."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

import rule_runtime
from benchmarks.detection.faults import BY_CONSTRUCTION, FAULTS
from benchmarks.detection.fitting import FITTING
from benchmarks.detection.judging import SHARED_CODE
from benchmarks.detection.program import PARTS, load_program, program_names
from benchmarks.detection.report import Packs, Table, summary, tables
from benchmarks.detection.scores import HARM, Judged

__all__ = ["digest_of_rules", "results"]

_LIBRARIES: Final = ("torch", "xgboost-cpu", "scikit-learn", "numpy")
_TITLES: Final = {
    "eleventh_held_out": "Programs that were held out an eleventh time",
    "tenth_held_out": "Programs that were held out a tenth time",
    "ninth_held_out": "Programs that were held out a ninth time",
    "eighth_held_out": "Programs that were held out an eighth time",
    "seventh_held_out": "Programs that were held out a seventh time",
    "sixth_held_out": "Programs that were held out a sixth time",
    "fifth_held_out": "Programs that were held out a fifth time",
    "fourth_held_out": "Programs that were held out a fourth time",
    "third_held_out": "Programs that were held out a third time",
    "second_held_out": "Programs that were held out a second time",
    "first_held_out": "Programs that were held out from the first version",
    "calibration": "Calibration programs",
}

_TEXTS: Final = Path(__file__).resolve().parent / "texts"


def results(runs: Sequence[Judged], packs: Packs) -> str:
    """Return the text of the file.

    Args:
        runs: All runs.
        packs: Keys of the rules of each pack.
    """
    versions = ", ".join(f"{name} {version(name)}" for name in _LIBRARIES)
    head = _text("head").format(
        versions=f"Python {platform.python_version()}, {versions}",
        digest=digest_of_rules(),
        harm=HARM,
        by_construction=" and ".join(f"`{fault}`" for fault in BY_CONSTRUCTION),
    )
    text = [head]
    parts = {part: [run for run in runs if run.plan.part == part] for part in reversed(PARTS)}
    for part, own in parts.items():
        text.append(summary(own, packs, _TITLES[part]).as_markdown())
    text += [_text("reading"), _text("limits"), "## Programs and faults\n", _kinds().as_markdown()]
    text += [_programs(part, own).as_markdown() for part, own in parts.items()]
    for part, own in parts.items():
        text.append(f"## {_TITLES[part]}\n")
        text += [table.as_markdown() for table in tables(own, packs)]
    return "\n".join(text)


def _text(name: str) -> str:
    return (_TEXTS / f"{name}.md").read_text()


def digest_of_rules() -> str:
    """Return what stands for the code of the rules and the packs."""
    digest = hashlib.sha256()
    folder = Path(rule_runtime.__file__).parent
    found = [path for part in ("rules", *SHARED_CODE) for path in folder.glob(f"{part}/*.py")]
    for path in sorted([*found, folder / "configuration" / "packs.py"]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


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
    return Table(_TITLES[part], head, rows)
