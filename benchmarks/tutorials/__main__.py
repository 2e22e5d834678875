"""Run healthy scripts unchanged under `stepwatch run`, and print what rules found in them.

python -m benchmarks.tutorials [NAME ...] [--seeds N] [--jobs N] [--save-interval N] [--write]

Nothing should be found: the scripts were written by somebody who knew no rule, in the manner of
tutorials, and what they train is healthy. Whatever is found is printed with its details. With
`--write` the table goes into RESULTS.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from benchmarks.tutorials.page import as_page, as_text
from benchmarks.tutorials.runs import outcome_of, scripts

RESULTS = Path(__file__).resolve().parent / "RESULTS.md"


def main(arguments_given: Sequence[str] | None = None) -> None:
    """Run, judge, tell.

    Args:
        arguments_given: The command line; None for that of this process.
    """
    arguments = _arguments(arguments_given)
    chosen = [each for each in scripts() if not arguments.names or each.name in arguments.names]
    if not chosen:
        raise SystemExit(f"no script is called {', '.join(arguments.names)}")
    runs = [(script, seed) for script in chosen for seed in range(arguments.seeds)]
    run = partial(outcome_of, save_interval=arguments.save_interval)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        outcomes = []
        for outcome in pool.map(lambda each: run(*each), runs):
            print(as_text(outcome), flush=True)
            outcomes.append(outcome)
    accused = sum(bool(each.findings) for each in outcomes)
    print(f"\n{accused} of {len(outcomes)} healthy runs have a finding")
    if arguments.write:
        RESULTS.write_text(as_page(outcomes, arguments.save_interval))


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.tutorials", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="scripts; none: all")
    parser.add_argument("--seeds", type=int, default=1, help="runs of each script")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    parser.add_argument("--save-interval", type=int, default=10, help="steps between saved ones")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    return parser.parse_args(given)


if __name__ == "__main__":
    main()
