"""The table of settings is what the code says."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from infra.config import READERS, StepwatchConfig
from tools import settings_documentation

ROOT = Path(__file__).resolve().parents[2]


def test_every_setting_can_be_read_and_stands_in_the_table() -> None:
    names = [field.name for field in fields(StepwatchConfig)]
    assert sorted(READERS) == sorted(names)
    rows = settings_documentation.table().splitlines()[2:]
    assert [row.split("`")[1] for row in rows] == [f"stepwatch:{name}" for name in names]
    assert all(len(row.split(" | ")) == 3 for row in rows)


def test_a_row_says_the_default_and_what_the_project_says_instead() -> None:
    rows = {row.split("`")[1]: row for row in settings_documentation.table().splitlines()[2:]}
    assert rows["stepwatch:rules"].startswith("| `stepwatch:rules` | required; cdk.json: `recomm")
    assert rows["stepwatch:batch_size"] == (
        "| `stepwatch:batch_size` | `10` | Largest number of events in one evaluation. |"
    )
    assert "| `IssuesFound,Error` |" in rows["stepwatch:notify_statuses"]
    assert "| `true` |" in rows["stepwatch:event_schema"]
