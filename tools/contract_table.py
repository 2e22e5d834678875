"""Write the tables of hooks into hook_layer/ADAPTERS.md: properties, and facts that rules know.

`python -m tools.contract_table FILE...` reads what the sessions of tests/frameworks wrote
(`--contract-results FILE`); with `--check` it writes nothing and fails if the document is stale.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from hook_layer.testing.hook_contract import PROPERTIES
from rule_runtime.testing.fact_contract import FACTS
from tools.generated_text import bring_up_to_date, replaced

__all__ = ["Entry", "chosen", "document", "main", "mistakes", "read"]

DOCUMENT: Final = Path(__file__).parents[1] / "hook_layer" / "ADAPTERS.md"
COMMAND: Final = "python -m tools.test_environments --write"
TABLES: Final[Mapping[str, tuple[str, ...]]] = {"contract": PROPERTIES, "fact": tuple(FACTS)}
"""The rows of each table, by its name in the marks around it."""


class Entry(NamedTuple):
    """How one test of one adapter went.

    Attributes:
        adapter: Name of the adapter.
        name: The property that the test belongs to.
        outcome: `passed`, `failed` or `skipped`.
        reason: Why it was skipped.
    """

    adapter: str
    name: str
    outcome: str
    reason: str = ""


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.contract_table", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if stale")
    parser.add_argument("results", nargs="+", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    entries = read(options.results)
    tables = [(table, names, chosen(entries, names)) for table, names in TABLES.items()]
    wrong = [line for _, names, found in tables for line in mistakes(found, names)]
    for line in wrong:
        print(line, file=sys.stderr)
    if wrong:
        return 1
    name = f"hook_layer/{DOCUMENT.name}"
    wanted = DOCUMENT.read_text(encoding="utf-8")
    for table, names, found in tables:
        marks = f"<!-- {table} table: begin -->", f"<!-- {table} table: end -->"
        wanted = replaced(wanted, marks, document(found, names), name=name)
    return bring_up_to_date(DOCUMENT, wanted, name=name, command=COMMAND, is_check=options.check)


def read(files: Iterable[Path]) -> list[Entry]:
    """Return what sessions wrote.

    Args:
        files: Their files.
    """
    return [
        Entry(found["adapter"], found["property"], found["outcome"], found.get("reason", ""))
        for file in files
        for found in json.loads(file.read_text())
    ]


def chosen(entries: Iterable[Entry], names: Sequence[str]) -> list[Entry]:
    """Return the entries of a table.

    Args:
        entries: All entries.
        names: Names of the table's rows.
    """
    return [entry for entry in entries if entry.name in names]


def mistakes(entries: Sequence[Entry], names: Sequence[str] = PROPERTIES) -> list[str]:
    """Return what keeps a table from being written: failures, and rows without a test."""
    failed = [f"{e.adapter}: {e.name} fails" for e in entries if e.outcome == "failed"]
    seen = {(entry.adapter, entry.name) for entry in entries}
    adapters = sorted({entry.adapter for entry in entries})
    return failed + [
        f"{adapter}: no test of {name!r} has run"
        for adapter in adapters
        for name in names
        if (adapter, name) not in seen
    ]


def document(entries: Sequence[Entry], names: Sequence[str] = PROPERTIES) -> str:
    """Return a table, and below it the reasons of what an adapter lacks."""
    adapters = sorted({entry.adapter for entry in entries}, key=str.lower)
    reasons: dict[tuple[str, str], str] = {}
    for entry in entries:
        if entry.outcome == "skipped":
            reasons[entry.adapter, entry.name] = entry.reason
    notes = {reason: number for number, reason in enumerate(sorted(set(reasons.values())), 1)}
    lines = [f"| | {' | '.join(adapters)} |", "|---" * (len(adapters) + 1) + "|"]
    lines += [_row(name, adapters, reasons, notes) for name in names]
    if notes:
        lines.append("")
        lines += [f"{number}. {reason}" for reason, number in notes.items()]
    return "\n".join(lines)


def _row(
    name: str,
    adapters: Sequence[str],
    reasons: Mapping[tuple[str, str], str],
    notes: Mapping[str, int],
) -> str:
    cells = [
        f"no ({notes[reasons[adapter, name]]})" if (adapter, name) in reasons else "yes"
        for adapter in adapters
    ]
    return f"| {name} | {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
