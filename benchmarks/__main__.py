"""Run benchmarks and print their table.

python -m benchmarks [GROUP ...] [--rounds N] [--size SHARE] [--no-peers] [--output FILE]
                     [--page FILE]

Each group runs in a process of its own, as what one leaves behind would slow the next one down.
"""

from __future__ import annotations

import argparse
import importlib
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measuring import Scale, busy_s
from benchmarks.page import Machine, write_page
from benchmarks.result import Result, print_table, write_json

ROOT = Path(__file__).resolve().parent.parent
GROUPS = {
    "statistics": "benchmarks.training:statistics",
    "raw": "benchmarks.training:raw",
    "losses": "benchmarks.training:losses",
    "write-large": "benchmarks.writing:large",
    "write-small": "benchmarks.writing:small",
    "open": "benchmarks.reading:opening",
    "values": "benchmarks.reading:values",
    "vanishing-gradient": "benchmarks.rules:vanishing_gradient",
    "evaluator": "benchmarks.rules:evaluator",
    "evaluator-batches": "benchmarks.deployed_evaluator:batches",
    "imports": "benchmarks.rules:imports",
    "memory": "benchmarks.reading:memory",
    "page": "benchmarks.runs_page:page",
    "accelerator": "benchmarks.accelerator:accelerator",
}
"""Functions that measure some rows, given a `Scale`."""
_QUIET = 0.1


def main() -> None:
    """Run the requested groups."""
    arguments = _arguments()
    if arguments.only:
        _measure(arguments)
        return
    results: list[Result] = []
    busy_before = busy_s()
    # Nothing is removed before all is measured; see `empty`.
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        for group in arguments.groups or GROUPS:
            print(f"measuring: {group}", file=sys.stderr, flush=True)
            results += _in_a_process(group, Path(folder))
    print_table(results)
    write_json(results, arguments.output)
    if arguments.page:
        write_page(arguments.page, results, Machine.this())
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    others_s = busy_s() - busy_before - own.ru_utime - own.ru_stime
    if others_s > max(_QUIET * (own.ru_utime + own.ru_stime), 1):
        print(
            f"Other processes used {others_s:.0f} s of CPU time meanwhile: wall times are longer "
            "than usual, so compare only ratios and CPU times."
        )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(GROUPS)}")
    parser.add_argument("--rounds", type=int, default=8, help="how often each thing is measured")
    parser.add_argument("--size", type=float, default=1.0, help="share of the full problem sizes")
    parser.add_argument("--no-peers", action="store_true", help="measure ours only")
    parser.add_argument("--folder", type=Path, help="where files are written for a while")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results.json")
    parser.add_argument("--page", type=Path, help="put the table into this page, too")
    parser.add_argument("--only", choices=GROUPS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    unknown = set(arguments.groups) - set(GROUPS)
    if unknown:
        parser.error(
            f"no group is called {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}"
        )
    return arguments


def _in_a_process(group: str, folder: Path) -> list[Result]:
    """Return the rows of a group; the other options are those of this process."""
    own = folder / group
    own.mkdir(exist_ok=True)
    output = folder / f"{group}.json"
    command = [sys.executable, "-m", "benchmarks", *sys.argv[1:]]
    # Of an option that is given twice the last one counts.
    command += ["--only", group, "--folder", str(own), "--output", str(output)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return [Result.from_json(row) for row in json.loads(output.read_text())]


def _measure(arguments: argparse.Namespace) -> None:
    module, _, function = GROUPS[arguments.only].partition(":")
    scale = Scale(arguments.rounds, arguments.size, not arguments.no_peers, arguments.folder)
    write_json(getattr(importlib.import_module(module), function)(scale), arguments.output)


if __name__ == "__main__":
    main()
