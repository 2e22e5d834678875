"""Print what a hook costs unchanged scripts: `python -m tests.frameworks.unchanged [NAME...]`.

With `--page docs/reference/measurements.md` the table goes into that page, too.
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
from tools.generated_text import replaced

MARKS = (
    "<!-- unchanged: written by `python -m tests.frameworks.unchanged` -->",
    "<!-- /unchanged -->",
)


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.frameworks.unchanged")
    parser.add_argument("--pairs", type=int, default=5, help="how often each script is run")
    parser.add_argument("--epochs", type=int, default=50, help="of 20 steps")
    parser.add_argument("--page", type=Path, help="put the table into this page, too")
    names = [task.name for task in TASKS]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}")
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(names):
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    measured = f"Median of {options.pairs} pairs, {options.epochs * 20} steps of which every"
    lines = [
        f"{measured} {SAVED_EVERY}th is saved: weights and gradients, or importances and metrics.",
        "",
        "| script | same loss | plain, ms a step | with a hook | overhead |",
        "|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    all_same = True
    for task in TASKS:
        if not options.names or task.name in options.names:
            line, is_same = _measure(task, options.pairs, options.epochs)
            print(line, flush=True)
            lines.append(line)
            all_same &= is_same
    if options.page:
        page = options.page.read_text(encoding="utf-8")
        page = replaced(page, MARKS, "\n".join(lines), name=options.page.name)
        options.page.write_text(page, encoding="utf-8")
    return 0 if all_same else 1


def _measure(task: Task, num_pairs: int, num_epochs: int) -> tuple[str, bool]:
    """Return the line of a script, and whether the hook leaves its result as it is."""
    plain, watched, is_same = [], [], True
    for _ in range(num_pairs):
        one = run(task, num_epochs=num_epochs)
        with tempfile.TemporaryDirectory() as folder:
            config = configuration(task, Path(folder))
            other = run(task, config=config, num_epochs=num_epochs)
        if one.status or other.status:
            print(f"{task.name}:\n{one.errors}\n{other.errors}", file=sys.stderr)
            return f"| {task.name} | FAILED | | | |", False
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
    return f"| {' | '.join(cells)} |", is_same


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
