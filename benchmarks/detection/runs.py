"""Training runs, kept in a folder: one that is there is not trained again."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

from benchmarks.detection.program import HEALTHY, Hanging, Run, load_program, program_names

__all__ = ["Plan", "Recorded", "obtain", "planned"]

_FOLDER: Final = Path(__file__).resolve().parent
_SHARED: Final = ("boosting.py", "data.py", "injecting.py", "training.py")
_LIBRARIES: Final = ("numpy", "scikit-learn", "torch")


@dataclass(frozen=True, order=True)
class Plan:
    """A run to be had.

    Attributes:
        half: The half that its program is in.
        program: Name of the program.
        fault: What is injected; `HEALTHY` for nothing.
        seed: The seed.
    """

    half: str
    program: str
    fault: str
    seed: int

    @property
    def is_healthy(self) -> bool:
        """True if nothing is injected."""
        return self.fault == HEALTHY


@dataclass(frozen=True)
class Recorded:
    """A run that was trained.

    Attributes:
        trial: Where its files are.
        error: Validation error of its last model; infinite if that is none, NaN if it hung.
        seconds: How long it took.
        hung: Whether it was stopped where it would have hung for ever.
    """

    trial: Path
    error: float
    seconds: float
    hung: bool


def planned(
    half: str,
    *,
    healthy_seeds: int,
    fault_seeds: int,
    only_programs: Sequence[str] | None = None,
    only_faults: Sequence[str] | None = None,
) -> list[Plan]:
    """Return the runs of one half.

    Args:
        half: One of `HALVES`.
        healthy_seeds: Number of healthy runs of each program.
        fault_seeds: Number of runs with each fault.
        only_programs: Only those of these programs; None for all.
        only_faults: Only those with these faults, or `HEALTHY`; None for all.

    Raises:
        ValueError: There are none.
    """
    plans = []
    for name in program_names(half):
        if name not in (only_programs or [name]):
            continue
        for kind in (HEALTHY, *load_program(half, name).faults):
            seeds = healthy_seeds if kind == HEALTHY else fault_seeds
            if kind in (only_faults or [kind]):
                plans += [Plan(half, name, kind, seed) for seed in range(seeds)]
    if not plans:
        raise ValueError(f"no run of {half} is of {only_programs} with {only_faults}")
    return plans


def obtain(plan: Plan, root: Path, *, again: bool = False) -> Recorded:
    """Return a run; it is trained if its program was changed since, or never was.

    Args:
        plan: The run.
        root: Where runs are kept.
        again: Whether it is trained in any case.
    """
    name = f"{plan.fault}-{plan.seed}"
    folder = root / plan.half / plan.program / f"{name}-{_content(plan)}"
    outcome = folder / "outcome.json"
    if again or not outcome.exists():
        # Renamed when it is whole, so that two processes may want the same run.
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".") as under_way:
            place = Path(under_way) / "run"
            found = _train(plan, place / "trial")
            (place / "outcome.json").write_text(json.dumps(found))
            for old in folder.parent.glob(f"{name}-*"):
                shutil.rmtree(old, ignore_errors=True)
            place.rename(folder)
    found = json.loads(outcome.read_text())
    return Recorded(folder / "trial", found["error"], found["seconds"], found["hung"])


def _train(plan: Plan, trial: Path) -> dict[str, object]:
    run = Run(plan.program, plan.fault, plan.seed, trial)
    start = time.perf_counter()
    error, hung = math.nan, False
    try:
        error = load_program(plan.half, plan.program).train(run)
    except Hanging:
        hung = True
    return {"error": error, "hung": hung, "seconds": time.perf_counter() - start}


def _content(plan: Plan) -> str:
    own = _FOLDER / plan.half / f"{plan.program}.py"
    return _digest(own)


@lru_cache
def _digest(own: Path) -> str:
    digest = hashlib.sha256(sys.version.encode())
    for library in _LIBRARIES:
        digest.update(version(library).encode())
    for path in (own, *(_FOLDER / name for name in _SHARED)):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
