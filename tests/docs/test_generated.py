"""Numbers and tables on the pages are those of what they are about."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.page_blocks import DOCS, ROOT
from tools import command_documentation, event_table


def text_of(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def test_the_options_of_commands_are_current() -> None:
    assert command_documentation.main(["--check"]) == 0, f"run {command_documentation.COMMAND}"


def test_the_table_of_events_is_current() -> None:
    assert event_table.main(["--check"]) == 0, f"run {event_table.COMMAND}"


def test_a_stale_page_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stale = tmp_path / "commands.md"
    stale.write_text("\n".join(["# Commands", *command_documentation.MARKS, "end\n"]))
    monkeypatch.setattr(command_documentation, "PAGE", stale)
    assert command_documentation.main(["--check"]) == 1
    assert command_documentation.main([]) == 0
    assert "### stepwatch rules explain" in stale.read_text()
    assert stale.read_text().endswith("end\n")


def rows_of(page: str) -> list[list[str]]:
    """Return the cells of the rows of the first table of a page."""
    table = re.search(r"^(\|.*\n)+", text_of(page), re.MULTILINE)
    assert table is not None
    return [
        [cell.strip() for cell in row.strip("|").split("|")] for row in table[0].splitlines()[2:]
    ]


def test_what_is_said_of_detection_is_what_was_measured() -> None:
    results = (ROOT / "benchmarks" / "detection" / "RESULTS.md").read_text(encoding="utf-8")
    rows = rows_of("explanation/detection.md")
    assert len(rows) > 5
    for _, *measured in rows:
        assert f"| {' | '.join(measured)} |" in results


def test_what_is_said_of_speed_is_what_was_measured() -> None:
    measurements = text_of("reference/measurements.md").replace("*", "")
    rows = rows_of("explanation/performance.md")
    assert len(rows) > 5
    for _, cost, others, _ in rows:
        for number in re.findall(r"[\d,.]*\d", cost + others):
            assert re.search(rf"(?<![\d.,]){re.escape(number)}(?![\d.]*\d)", measurements), number
