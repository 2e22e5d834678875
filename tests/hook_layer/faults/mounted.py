"""Trainings on file systems of their own, in a mount namespace of their own.

unshare -rm python -m tests.hook_layer.faults.mounted SCENARIO FOLDER
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hook_layer.spool import main as deliver_spool
from hook_layer.testing.written_trial import WrittenTrial
from tests.hook_layer.faults.training import logged, stored_steps, train
from tests.hook_layer.tiny_hook import make_hook

STEP_BYTES = 200_000
NUM_STEPS = 12


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def full_disk(folder: Path) -> dict[str, Any]:
    """The target's disk has room for some steps only; local disk has room for the others."""
    disk, spools = folder / "disk", folder / "spools"
    disk.mkdir()
    mount("-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk))
    out_dir = str(disk / "run")
    hook = make_hook(WrittenTrial(out_dir), spool_dir=str(spools), close_timeout_s=0.5)
    outcome = train(hook, NUM_STEPS, [STEP_BYTES])
    before = stored_steps(out_dir)
    mount("-o", "remount,size=10m", str(disk))
    (spool,) = spools.iterdir()
    return {
        "outcome": asdict(outcome),
        "before": before,
        "status": deliver_spool([str(spool)], sys.stderr),
        "after": stored_steps(out_dir),
        "has_end": WrittenTrial(out_dir).end_marker() is not None,
        "spools": [str(path) for path in spools.iterdir()],
    }


def full_everywhere(folder: Path) -> dict[str, Any]:
    """The spool is on the same full disk; in the middle of the training somebody makes room."""
    disk = folder / "disk"
    disk.mkdir()
    mount("-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk))
    out_dir = str(disk / "run")
    hook = make_hook(WrittenTrial(out_dir), spool_dir=str(disk / "spools"))

    def make_room(step: int) -> None:
        if step == NUM_STEPS - 2:
            hook.flush(10)
            mount("-o", "remount,size=20m", str(disk))

    outcome = train(hook, NUM_STEPS, [STEP_BYTES], before_step=make_room)
    indexes = WrittenTrial(out_dir).indexes().values()
    return {
        "outcome": asdict(outcome),
        "after": stored_steps(out_dir),
        "missing": sum(index.skipped or 0 for index in indexes),
        "last": list(WrittenTrial(out_dir).end_marker().sequences.values()),
        "spools": [str(path) for path in (disk / "spools").iterdir()],
    }


def read_only(folder: Path) -> dict[str, Any]:
    """The target's folder is mounted read-only."""
    target, spools = folder / "target", folder / "spools"
    target.mkdir()
    mount("--bind", str(target), str(target))
    mount("-o", "remount,ro,bind", str(target))
    messages = logged()
    hook = make_hook(WrittenTrial(str(target)), spool_dir=str(spools))
    outcome = train(hook, NUM_STEPS, [STEP_BYTES])
    outcome.log = messages
    mount("-o", "remount,rw,bind", str(target))
    (spool,) = spools.iterdir()
    return {
        "outcome": asdict(outcome),
        "status": deliver_spool([str(spool)], sys.stderr),
        "after": stored_steps(str(target)),
        "job": WrittenTrial(str(target)).job().run_id,
        "has_end": WrittenTrial(str(target)).end_marker() is not None,
    }


if __name__ == "__main__":
    scenario = {f.__name__: f for f in (full_disk, full_everywhere, read_only)}[sys.argv[1]]
    print(json.dumps(scenario(Path(sys.argv[2]))))
