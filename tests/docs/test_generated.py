"""Numbers and tables on the pages are those of what they are about."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.docs.page_blocks import DOCS, ROOT
from tests.tables import table
from tools import (
    cause_table,
    command_documentation,
    event_table,
    settings_documentation,
    statement_table,
)
from tools.generated_text import replaced


def text_of(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


SETTINGS_MARKS = (settings_documentation.BEGIN, settings_documentation.END)


@table(
    "tool, marks, expected",
    {
        "commands": (
            command_documentation,
            command_documentation.MARKS,
            "### stepwatch rules explain",
        ),
        "causes": (cause_table, cause_table.MARKS, "| The learning rate is too high |"),
        "events": (event_table, event_table.MARKS, "| event | when |"),
        "statements": (statement_table, statement_table.MARKS, "`sagemaker:StopTrainingJob`"),
        "settings": (settings_documentation, SETTINGS_MARKS, "`stepwatch:rules`"),
    },
)
def test_a_stale_page_is_found_and_written_anew(
    tool: Any,
    marks: tuple[str, str],
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    assert tool.main(["--check"]) == 0, f"run {tool.COMMAND}"
    stale = tmp_path / "page.md"
    stale.write_text("\n".join(["before", marks[0], "of last year", marks[1], "after\n"]))
    monkeypatch.setattr(tool, "PAGE", stale)
    assert tool.main(["--check"]) == 1
    assert tool.main([]) == 0
    text = stale.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert expected in text
    assert "of last year" not in text
    assert tool.main(["--check"]) == 0


def test_a_statement_about_a_resource_without_words_is_refused() -> None:
    statement = {"Effect": "Allow", "Action": "s3:*", "Resource": {"Ref": "NewBucket0A1B2C3D"}}
    role = {
        "Type": "AWS::IAM::Policy",
        "Properties": {"PolicyDocument": {"Statement": [statement]}},
    }
    with pytest.raises(ValueError, match="NewBucket0A1B2C3D is in a statement: add its words"):
        statement_table.statements({"Resources": {"SweepSweeperRolePolicy0A1B2C3D": role}})


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="the page lacks the lines <begin> and <end>"):
        replaced("nothing here", ("<begin>", "<end>"), "content", name="the page")


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
