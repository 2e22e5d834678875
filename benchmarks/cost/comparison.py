"""What the model says beside what a simulation counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from benchmarks.cost.simulation import PHASES, Counted

__all__ = ["Compared", "compared", "print_comparison"]


@dataclass(frozen=True)
class Compared:
    """One kind of request in one phase.

    Attributes:
        phase: When.
        operation: "<service>.<operation>".
        predicted: How many the model expects.
        counted: How many there were.
        share: What share of the counted requests of all phases they are.
    """

    phase: str
    operation: str
    predicted: float
    counted: float
    share: float

    @property
    def ratio(self) -> float:
        """What the model expects for one that was counted; infinite where none was."""
        return self.predicted / self.counted if self.counted else float("inf")


def compared(predicted: dict[str, dict[str, float]], counted: Counted) -> Iterator[Compared]:
    """Yield every kind of request that either knows of."""
    total = sum(sum(counts.values()) for counts in counted.requests.values())
    for phase in PHASES:
        expected = predicted.get(phase, {})
        found: Mapping[str, int] = counted.requests.get(phase, {})
        for operation in sorted({*expected, *found}):
            count = float(found.get(operation, 0))
            yield Compared(phase, operation, expected.get(operation, 0.0), count, count / total)


def print_comparison(rows: list[Compared], evaluated_steps: int) -> None:
    """Print the rows.

    Args:
        rows: What is compared.
        evaluated_steps: Steps of all jobs times rules; counts are also printed for each of them.
    """
    head = ("phase", "request", "model", "counted", "a step and rule", "model / counted")
    print(f"{head[0]:<23}{head[1]:<25}{head[2]:>11}{head[3]:>10}{head[4]:>17}{head[5]:>17}")
    for row in rows:
        each = row.counted / evaluated_steps
        print(
            f"{row.phase:<23}{row.operation:<25}{row.predicted:>11,.0f}{row.counted:>10,.0f}"
            f"{each:>17.4f}{row.ratio:>17.2f}"
        )
