"""Train once for each thing that can be configured, and print the result.

python -m examples.configuration_tour [--requests] [FOLDER]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from examples.configuration_tour.checks import mistakes
from examples.configuration_tour.refused import MISTAKES, refusal
from examples.configuration_tour.run import Ran, run
from examples.configuration_tour.stops import COLLECTIONS, STOPS
from rule_runtime.engine.outcome import without_api_prefix


def main(folder: Path, *, prints_requests: bool = False) -> int:
    """Go through all stops.

    Args:
        folder: Where runs are stored, one folder per stop.
        prints_requests: Whether to print the members of CreateTrainingJob that configure a stop.

    Returns:
        0 if each stop has the expected result.
    """
    wrong = []
    for stop in STOPS:
        print(f"\n== {stop.name}\n{stop.about}\n")
        if prints_requests:
            print(json.dumps(stop.request(), indent=2))
        ran = run(stop, folder)
        print_run(ran)
        wrong += mistakes(ran)
    print("\n== kill-switch\nUSE_SMDEBUG=0 switches off the hook of a configured job.\n")
    killed = run(COLLECTIONS, folder / "kill-switch", USE_SMDEBUG="0")
    print_run(killed)
    wrong += [f"the kill switch: saved is {killed.saved()}"] if killed.saved() else []
    print("\n== mistakes\n`prepare` rejects them before a job costs anything.\n")
    for what, mistake in MISTAKES.items():
        message = refusal(mistake, folder)
        print(f"{what}:\n  {message}")
        wrong += [] if message else [f"{what} is not rejected"]
    for text in wrong:
        print(f"tour: FAILED: {text}")
    print(f"\ntour: {'failed' if wrong else 'ok'}")
    return 1 if wrong else 0


def print_run(ran: Ran) -> None:
    """Print what the run of a stop saved, and the statuses of its rules."""
    print(f"steps: {ran.num_steps}{', stopped: ' * bool(ran.stopped)}{ran.stopped}")
    print_table(
        ("saved", "tensors", "form", "training steps", "validation steps"),
        [
            (
                each.collection,
                each.num_tensors,
                each.form,
                _steps(each.train),
                _steps(each.evaluation),
            )
            for each in ran.saved()
        ],
    )
    if files := ran.tensorboard_files():
        print(f"TensorBoard: {len(files)} files in {ran.prepared.tensorboard_output}")
    print_table(
        ("rule", "status", "reason"),
        [
            (
                rule["RuleConfigurationName"],
                rule["RuleEvaluationStatus"],
                without_api_prefix(rule["StatusDetails"]),
            )
            for rule in ran.summary()
        ],
    )


def print_table(columns: tuple[str, ...], rows: list[tuple[object, ...]]) -> None:
    """Print rows under their titles; nothing if there are none."""
    if not rows:
        return
    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*map(str, row))
    Console(width=100, markup=False, highlight=False).print(table)


def _steps(steps: list[int]) -> str:
    return ", ".join(map(str, steps)) or "none"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description="Train once for each thing that can be configured."
    )
    parser.add_argument("folder", nargs="?", type=Path, help="keeps the runs")
    parser.add_argument(
        "--requests", action="store_true", help="print members of CreateTrainingJob"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stepwatch-tour-") as temporary:
        where = arguments.folder or Path(temporary)
        sys.exit(main(where, prints_requests=arguments.requests))
