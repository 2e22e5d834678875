"""The deployed evaluator, as Lambda calls it: evaluated steps a second, and memory.

Its requests are built and checked by botocore, and answered in the process without any network:
what is measured is the function's own work.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from benchmarks.cost.deployment import Evaluator
from benchmarks.cost.functions import BUCKET, Functions, object_created, queue_url
from benchmarks.cost.in_memory_aws import InMemoryAws, counted_requests
from benchmarks.cost.jobs import Jobs
from benchmarks.cost.workload import Workload
from benchmarks.measuring import Scale, seconds
from benchmarks.result import Measured, Result
from hook_layer.storage.memory import MemoryStore
from lambdas.contracts import environment

__all__ = ["RECORDS", "batches", "main"]

RECORDS: Final = (1, 10, 100)
RULE: Final = "VanishingGradient"
ROOT: Final = Path(__file__).resolve().parent.parent
_TENSORS: Final = 50
_GOALS: Final = {10: (500.0, 1000.0)}
"""Steps a second that must be reached, and are aimed at: ten events in 20 and in 10 ms."""
_MEMORY_MB: Final = 512
"""What an evaluator has, unless it is deployed with another setting."""


def batches(scale: Scale) -> list[Result]:
    """Evaluate a job of 50 tensors by calls with 1, 10 and 100 records, a process for each."""
    folder = scale.folder / "objects"
    jobs = Jobs(Workload(jobs=1, steps=scale.of(1000, least=100)), _TENSORS)
    for key, content in jobs.objects():
        if "/events/" not in key:  # the rule reads statistics only
            path = folder / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    rows = []
    for records in RECORDS:
        found = _in_a_process(folder, records, scale.rounds)
        name = f"evaluator, {records} record{'s' if records > 1 else ''} a batch"
        must, aim = _GOALS.get(records, (None, None))
        rate = Measured.of(found["steps_per_s"])
        rows += [
            Result(f"{name}: steps a second", "steps/s", rate, must, aim, better="higher"),
            Result(f"{name}: peak memory", "MB", Measured.of([found["peak_mb"]]), _MEMORY_MB),
        ]
    return rows


def main() -> None:
    """Measure in this process; the parent reads what is printed."""
    folder, records, rounds = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    keys = sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*.json")
        if "index" in path.parts
    )
    bodies = [object_created(key) for key in keys]
    parts = [bodies[first : first + records] for first in range(0, len(bodies), records)]
    aws = InMemoryAws(_FolderStore(folder))
    functions = Functions({RULE: queue_url(0)})
    evaluator = _evaluator(records)

    def evaluate() -> None:
        aws.table.partitions.clear()
        for part in parts:
            functions.evaluate(evaluator, 0, part, time.time())

    with counted_requests(aws):
        evaluate()
        rates = [len(bodies) / seconds(evaluate) for _ in range(rounds)]
    print(json.dumps({"steps_per_s": rates, "peak_mb": _peak_memory_kb() / 1024}))


def _peak_memory_kb() -> int:
    """Return the most memory that this program took; `getrusage` counts its parent's, too."""
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


class _FolderStore(MemoryStore):
    """Reads objects from a folder first: they take none of the memory that is measured."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """Return at most `length` of the object's bytes, from `start`."""
        path = self._folder / key.removeprefix(f"{BUCKET}/")
        if not path.exists():
            return super().get(key, start, length)
        return path.read_bytes()[start : None if length is None else start + length]


def _evaluator(records: int) -> Evaluator:
    variables = {
        environment.RULE_CONFIGURATION_NAME: RULE,
        environment.RULE_PARAMETERS: json.dumps({"rule_to_invoke": RULE}),
    }
    return Evaluator(RULE, variables, _MEMORY_MB, records, 1.0, None, hears_of_steps=True)


def _in_a_process(folder: Path, records: int, rounds: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.deployed_evaluator"]
    command += [str(folder), str(records), str(rounds)]
    done = subprocess.run(
        command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"the evaluator ended with status {done.returncode}:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
