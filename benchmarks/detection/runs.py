"""Training runs, cached in a folder."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

import torch

from benchmarks.detection.digests import digest_of_hook
from benchmarks.detection.parts import load_program
from benchmarks.detection.plans import Plan
from benchmarks.detection.program import Hanging, Run
from rule_runtime.configuration.packs import find_pack

__all__ = ["Recorded", "obtain"]

_FOLDER: Final = Path(__file__).resolve().parent
_SHARED: Final = (
    "boosting.py",
    "data.py",
    "hook_configuration.py",
    "injecting.py",
    "script.py",
    "training.py",
)
_LIBRARIES: Final = ("numpy", "scikit-learn", "torch", "xgboost-cpu")


@dataclass(frozen=True)
class Recorded:
    """A run that was trained.

    Attributes:
        trial: Folder of its files.
        error: Validation error of its last model; NaN if it hung or measures none.
        seconds: Duration of the training.
        hung: Whether it was stopped where a stalled training hangs for ever.
    """

    trial: Path
    error: float
    seconds: float
    hung: bool


def obtain(plan: Plan, pack: str, root: Path) -> Recorded:
    """Return a run; train it if the cache has none of this program and this hook.

    Args:
        plan: The run.
        pack: Name of the pack of rules whose collections the hook saves.
        root: Folder of the cache.
    """
    name = f"{plan.fault}-{plan.seed}-{pack}"
    folder = root / plan.part / plan.program / f"{name}-{_content(plan, pack)}"
    outcome = folder / "outcome.json"
    if not outcome.exists():
        # Renamed when it is complete: two processes may train the same run.
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".") as unfinished:
            target = Path(unfinished) / "run"
            found = _train(plan, pack, target / "trial")
            (target / "outcome.json").write_text(json.dumps(found))
            for old in folder.parent.glob(f"{name}-*"):
                shutil.rmtree(old, ignore_errors=True)
            target.rename(folder)
    found = json.loads(outcome.read_text())
    return Recorded(folder / "trial", found["error"], found["seconds"], found["hung"])


def _train(plan: Plan, pack: str, trial: Path) -> dict[str, object]:
    run = Run(plan.program, plan.fault, plan.seed, trial, pack)
    torch.manual_seed(plan.seed)
    start = time.perf_counter()
    error, hung = math.nan, False
    try:
        error = load_program(plan.part, plan.program)(run)
    except Hanging:
        hung = True
    return {"error": error, "hung": hung, "seconds": time.perf_counter() - start}


def _content(plan: Plan, pack: str) -> str:
    own = _FOLDER / plan.part / f"{plan.program}.py"
    return _digest(own if own.exists() else _FOLDER / f"{plan.part}.py", pack)


@lru_cache
def _digest(own: Path, pack: str) -> str:
    digest = hashlib.sha256(f"{sys.version} {digest_of_hook()}".encode())
    collections = [config.to_json() for config in find_pack(pack).collections()]
    digest.update(json.dumps(collections, sort_keys=True).encode())
    for library in _LIBRARIES:
        digest.update(version(library).encode())
    for path in (own, *(_FOLDER / name for name in _SHARED)):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
