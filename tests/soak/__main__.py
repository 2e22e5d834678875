"""Let many jobs train at once while the poller dies and services fail; is every verdict right?

python -m tests.soak [--jobs N] [--minutes M] [--failures SHARE] [--seed N] [--rules NAMES]
    [--evaluators per_rule|grouped]

The template runs in the local target. Requests fail, and the poller dies, from the beginning on.
When nothing is on its way any more, everything is compared. The exit status is 1 if anything is
wrong.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from tests.soak.plan import RULES
from tests.soak.report import print_report
from tests.soak.soaking import Settings, soak


def main(arguments_given: Sequence[str] | None = None) -> int:
    """Soak, tell, and return the status to exit with.

    Args:
        arguments_given: The command line; None for that of this process.
    """
    arguments = _arguments(arguments_given)
    logging.getLogger("stepwatch").setLevel(logging.ERROR)  # resumed runs say so, each of them
    settings = Settings(
        num_jobs=arguments.jobs,
        span_s=60 * arguments.minutes,
        failures=arguments.failures,
        seed=arguments.seed,
        evaluators=arguments.evaluators,
        rules={name: RULES.get(name, {}) for name in arguments.rules},
    )
    workdir = Path(tempfile.mkdtemp(prefix="soak-"))
    console = Console(width=110)
    with console.status("") as status:
        findings, course, misfortune = soak(settings, workdir, status.update)
    problems = print_report(console, findings, course, misfortune)
    if problems:
        console.print(f"{len(problems)} things are wrong. Logs of the functions: {workdir}")
        return 1
    console.print("Everything is as it should be.")
    shutil.rmtree(workdir)
    return 0


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--jobs", type=_at_least_one, default=50, help="jobs at once (50)")
    parser.add_argument("--minutes", type=float, default=5.0, help="how long jobs write (5)")
    parser.add_argument(
        "--failures",
        type=_share,
        default=0.05,
        help="share of the functions' requests to S3, DynamoDB and EventBridge that fail (0.05)",
    )
    parser.add_argument("--seed", type=int, default=0, help="draws jobs, kills and faults (0)")
    modes = ("per_rule", "grouped")
    parser.add_argument("--evaluators", choices=modes, default="per_rule", help="(per_rule)")
    parser.add_argument(
        "--rules",
        type=lambda text: text.split(","),
        default=list(RULES),
        help=f"names of rules; jobs can be sick for those of {','.join(RULES)}, the default",
    )
    return parser.parse_args(given)


def _share(text: str) -> float:
    share = float(text)
    if not 0 <= share < 1:
        raise argparse.ArgumentTypeError(f"{text} is no share from 0 to below 1, such as 0.05")
    return share


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
