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

from benchmarks.detection.digests import digest_of_hook
from benchmarks.detection.parts import load_program, program_names
from benchmarks.detection.program import HEALTHY, Hanging, Run
from rule_runtime.configuration.packs import find_pack

__all__ = ["Plan", "Recorded", "obtain", "planned"]

_FOLDER: Final = Path(__file__).resolve().parent
_SHARED: Final = (
    "boosting.py",
    "data.py",
    "hooking.py",
    "injecting.py",
    "script.py",
    "training.py",
)
_LIBRARIES: Final = ("numpy", "scikit-learn", "torch", "xgboost-cpu")


@dataclass(frozen=True, order=True)
class Plan:
    """A run to be had.

    Attributes:
        part: The part that its program is in.
        program: Name of the program.
        fault: What is injected; `HEALTHY` for nothing.
        seed: The seed.
    """

    part: str
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
    part: str,
    *,
    healthy_seeds: int,
    fault_seeds: int,
    only_programs: Sequence[str] | None = None,
    only_faults: Sequence[str] | None = None,
) -> list[Plan]:
    """Return the runs of one part.

    Args:
        part: One of `PARTS`.
        healthy_seeds: Number of healthy runs of each program.
        fault_seeds: Number of runs with each fault.
        only_programs: Only those of these programs; None for all.
        only_faults: Only those with these faults, or `HEALTHY`; None for all.
    """
    plans = []
    for name in program_names(part):
        if name not in (only_programs or [name]):
            continue
        for kind in (HEALTHY, *load_program(part, name).faults):
            seeds = healthy_seeds if kind == HEALTHY else fault_seeds
            if kind in (only_faults or [kind]):
                plans += [Plan(part, name, kind, seed) for seed in range(seeds)]
    return plans


def obtain(plan: Plan, pack: str, root: Path, *, again: bool = False) -> Recorded:
    """Return a run; it is trained if its program or the hook was changed since, or never was.

    Args:
        plan: The run.
        pack: Name of the pack of rules that says what the hook saves.
        root: Where runs are kept.
        again: Whether it is trained in any case.
    """
    name = f"{plan.fault}-{plan.seed}-{pack}"
    folder = root / plan.part / plan.program / f"{name}-{_content(plan, pack)}"
    outcome = folder / "outcome.json"
    if again or not outcome.exists():
        # Renamed when it is whole, so that two processes may want the same run.
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".") as under_way:
            place = Path(under_way) / "run"
            found = _train(plan, pack, place / "trial")
            (place / "outcome.json").write_text(json.dumps(found))
            for old in folder.parent.glob(f"{name}-*"):
                shutil.rmtree(old, ignore_errors=True)
            place.rename(folder)
    found = json.loads(outcome.read_text())
    return Recorded(folder / "trial", found["error"], found["seconds"], found["hung"])


def _train(plan: Plan, pack: str, trial: Path) -> dict[str, object]:
    run = Run(plan.program, plan.fault, plan.seed, trial, pack)
    start = time.perf_counter()
    error, hung = math.nan, False
    try:
        error = load_program(plan.part, plan.program).train(run)
    except Hanging:
        hung = True
    return {"error": error, "hung": hung, "seconds": time.perf_counter() - start}


def _content(plan: Plan, pack: str) -> str:
    own = _FOLDER / plan.part / f"{plan.program}.py"
    return _digest(own if own.exists() else _FOLDER / f"{plan.part}.py", pack)


@lru_cache
def _digest(own: Path, pack: str) -> str:
    digest = hashlib.sha256(f"{sys.version} {digest_of_hook()}".encode())
    asked = [config.to_json() for config in find_pack(pack).collections()]
    digest.update(json.dumps(asked, sort_keys=True).encode())
    for library in _LIBRARIES:
        digest.update(version(library).encode())
    for path in (own, *(_FOLDER / name for name in _SHARED)):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
