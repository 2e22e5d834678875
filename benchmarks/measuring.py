"""How things are measured: in turns, so that what else the machine does hits all of them alike."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.result import Measured

__all__ = [
    "Contender",
    "Scale",
    "added_per_step",
    "busy_s",
    "empty",
    "in_turns",
    "seconds",
    "touch_memory",
]

_WARM_UP = 3  # steps


@dataclass(frozen=True)
class Scale:
    """How much is measured.

    Attributes:
        rounds: How often each thing is measured.
        size: Share of the full problem sizes.
        peers: Whether the others are measured, too.
        folder: Where files go.
    """

    rounds: int
    size: float
    peers: bool
    folder: Path

    def of(self, full: int, least: int = 1) -> int:
        """Return a problem size, given that of a full run."""
        return max(least, round(full * self.size))


@dataclass
class Contender:
    """A training whose steps are timed.

    Attributes:
        step: Does one step.
        settle: Waits for work after the steps.
        tidy: Gives back the memory of what was written.
        every: It takes part in each `every`-th round only, as it takes long.
        finish: Waits for the steps themselves, where these only queue their work.
    """

    step: Callable[[], None]
    settle: Callable[[], object] = lambda: None
    tidy: Callable[[], object] = lambda: None
    every: int = 1
    finish: Callable[[], object] = lambda: None


def seconds(work: Callable[[], object]) -> float:
    """Return how long a call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def in_turns(works: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Return what each callable returned, called in turns; a first call of each does not count."""
    for work in works.values():
        work()
    found: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            found[name].append(work())
    return found


def added_per_step(
    plain: Contender,
    contenders: Mapping[str, Contender],
    *,
    rounds: int,
    steps: int,
    durations: list[float] | None = None,
) -> dict[str, tuple[Measured, Measured]]:
    """Return what contenders add to a step of the plain training: wall and CPU time, ms.

    A block of steps of each contender stands between two of the plain one, and is compared with
    their mean. Wall time is that of the training loop; CPU time is that of all threads and child
    processes, until all work after the steps is done.

    Args:
        plain: The training without anything added.
        contenders: Its twins with something added, by name.
        rounds: How many blocks of each.
        steps: How many steps a block has.
        durations: Gets the wall times of the plain training's steps, ms.
    """
    for contender in (plain, *contenders.values()):
        _block(contender, _WARM_UP, ())
    children = _children()
    added: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    before = _block(plain, steps, children)
    for number in range(rounds):
        for name, contender in contenders.items():
            if number % contender.every:
                continue
            between = _block(contender, steps, children)
            after = _block(plain, steps, children)
            wall, cpu = (
                between[kind] - (before[kind] + after[kind]) / 2 for kind in range(len(between))
            )
            added[name].append((wall, cpu))
            before = after
            if durations is not None:
                durations.append(after[0])
    return {
        name: (Measured.of(wall for wall, _ in pairs), Measured.of(cpu for _, cpu in pairs))
        for name, pairs in added.items()
    }


def busy_s() -> float:
    """Return the CPU time that all processes of this machine used, seconds; 0 where not known."""
    path = Path("/proc/stat")
    if not path.exists():
        return 0.0
    user, nice, system, *_ = map(int, path.read_text().split()[1:5])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def empty(folder: Path) -> None:
    """Give the memory of the files in a folder back, and keep the files with length 0.

    So the system writes the next ones to memory that it has used before. A virtual machine may wait
    ten times as long for memory that it never used as it takes to write to it, which says nothing
    about who writes. The files stay because ext4 without a journal searches all files that were
    removed in the last minutes for each new one, which makes that up to eight times as slow.
    """
    for path in folder.rglob("*"):
        if path.is_file():
            os.truncate(path, 0)


def touch_memory(folder: Path, num_bytes: int) -> None:
    """Let the system use as much memory for files once; see `empty`."""
    path = folder / "touched"
    with path.open("wb") as file:
        for _ in range(num_bytes >> 20):
            file.write(bytes(1 << 20))
    path.unlink()


def _block(contender: Contender, steps: int, children: Sequence[Any]) -> tuple[float, float]:
    """Return wall and CPU time of a step, ms."""
    cpu, wall = _cpu_s(children), time.perf_counter()
    for _ in range(steps):
        contender.step()
    contender.finish()
    wall = time.perf_counter() - wall
    contender.settle()
    cpu = _cpu_s(children) - cpu
    contender.tidy()
    return 1e3 * wall / steps, 1e3 * cpu / steps


def _cpu_s(children: Sequence[Any]) -> float:
    """Return the CPU time of this process and its children, seconds."""
    return time.process_time() + sum(map(_cpu_of, children))


def _cpu_of(process: Any) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _children() -> Sequence[Any]:
    try:
        psutil = importlib.import_module("psutil")
    except ImportError:  # only some of the others have child processes
        return ()
    children: Sequence[Any] = psutil.Process().children(recursive=True)
    return children
