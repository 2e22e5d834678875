"""Print what a hook costs unchanged scripts: `python -m tests.frameworks.unchanged [NAME...]`.

Each script trains plainly and with a hook, in turn; the overhead is the median of the pairs'.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.frameworks.unchanged.tasks import SAVED_EVERY, TASKS, Task, configuration, run


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.frameworks.unchanged")
    parser.add_argument("--pairs", type=int, default=5, help="how often each script is run")
    parser.add_argument("--epochs", type=int, default=50, help="of 20 steps")
    names = [task.name for task in TASKS]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}")
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(names):
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    print(f"median of {options.pairs} pairs, {options.epochs * 20} steps of which every")
    print(f"{SAVED_EVERY}th is saved: weights and gradients, or importances and metrics\n")
    print("| script | same loss | plain, ms a step | with a hook | overhead |")
    print("|---|---|---|---|---|", flush=True)
    all_same = [
        _measure(task, options.pairs, options.epochs)
        for task in TASKS
        if not options.names or task.name in options.names
    ]
    return 0 if all(all_same) else 1


def _measure(task: Task, num_pairs: int, num_epochs: int) -> bool:
    plain, watched, is_same = [], [], True
    for _ in range(num_pairs):
        one = run(task, num_epochs=num_epochs)
        with tempfile.TemporaryDirectory() as folder:
            config = configuration(task, Path(folder))
            other = run(task, config=config, num_epochs=num_epochs)
        if one.status or other.status:
            print(f"| {task.name} | FAILED | | | |", flush=True)
            print(f"{task.name}:\n{one.errors}\n{other.errors}", file=sys.stderr)
            return False
        is_same &= one.output == other.output
        plain.append(one.seconds)
        watched.append(other.seconds)
    overhead = statistics.median(b / a - 1 for a, b in zip(plain, watched, strict=True))
    step = 1000 / (20 * num_epochs)
    cells = [
        task.name,
        "yes" if is_same else "NO",
        f"{statistics.median(plain) * step:.3f}",
        f"{statistics.median(watched) * step:.3f}",
        f"{overhead:+.1%}",
    ]
    print(f"| {' | '.join(cells)} |", flush=True)
    return is_same


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
