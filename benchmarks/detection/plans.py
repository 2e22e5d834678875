"""The planned runs: one line each in `frozen.jsonl`, with the findings that were frozen.

A new program needs a line per run, with `"findings": null` until `compare --freeze-new` fills it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.detection.program import HEALTHY

__all__ = ["FROZEN", "Plan", "planned", "read_frozen", "write_frozen"]

FROZEN: Final = Path(__file__).resolve().parent / "frozen.jsonl"


@dataclass(frozen=True, order=True)
class Plan:
    """A planned run.

    Attributes:
        part: The part of its program.
        program: Name of the program.
        fault: The injected fault; `HEALTHY` for none.
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


def read_frozen(path: Path = FROZEN) -> dict[Plan, dict[str, int] | None]:
    """Return of each planned run the step of each rule's first finding; None if not frozen."""
    rows = map(json.loads, path.read_text().splitlines())
    return {
        Plan(row["part"], row["program"], row["fault"], row["seed"]): row["findings"]
        for row in rows
    }


def write_frozen(findings: Mapping[Plan, Mapping[str, int] | None], path: Path = FROZEN) -> None:
    """Write the planned runs and their findings."""
    lines = [json.dumps({**vars(plan), "findings": found}) for plan, found in findings.items()]
    path.write_text("".join(f"{line}\n" for line in lines))


def planned(
    part: str,
    *,
    healthy_seeds: int,
    fault_seeds: int,
    only_programs: Sequence[str] | None = None,
    only_faults: Sequence[str] | None = None,
) -> list[Plan]:
    """Return the runs of one part: its planned programs and faults with several seeds.

    Args:
        part: One of `PARTS`.
        healthy_seeds: Number of healthy runs of each program.
        fault_seeds: Number of runs with each fault.
        only_programs: Only those of these programs; None for all.
        only_faults: Only those with these faults, or `HEALTHY`; None for all.
    """
    pairs = dict.fromkeys((p.program, p.fault) for p in read_frozen() if p.part == part)
    return [
        Plan(part, program, fault, seed)
        for program, fault in pairs
        if program in (only_programs or [program]) and fault in (only_faults or [fault])
        for seed in range(healthy_seeds if fault == HEALTHY else fault_seeds)
    ]
