"""The table of settings is what the code says."""

from __future__ import annotations

import importlib.util
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import pytest

from infra.config import READERS, StepwatchConfig

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    path = ROOT / "tools" / "settings_documentation.py"
    spec = importlib.util.spec_from_file_location("settings_documentation", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_is_not_stale(tool: ModuleType) -> None:
    assert tool.main(["--check"]) == 0, f"run `{tool.COMMAND}`"


def test_every_setting_can_be_read_and_stands_in_the_table(tool: ModuleType) -> None:
    names = [field.name for field in fields(StepwatchConfig)]
    assert sorted(READERS) == sorted(names)
    rows = tool.table().splitlines()[2:]
    assert [row.split("`")[1] for row in rows] == [f"stepwatch:{name}" for name in names]
    assert all(len(row.split(" | ")) == 3 for row in rows)


def test_a_row_says_the_default_and_what_the_project_says_instead(tool: ModuleType) -> None:
    rows = {row.split("`")[1]: row for row in tool.table().splitlines()[2:]}
    assert rows["stepwatch:rules"].startswith("| `stepwatch:rules` | required; cdk.json: `recomm")
    assert rows["stepwatch:batch_size"] == (
        "| `stepwatch:batch_size` | `10` | Largest number of events in one evaluation. |"
    )
    assert "| `IssuesFound,Error` |" in rows["stepwatch:notify_statuses"]
    assert "| `true` |" in rows["stepwatch:event_schema"]


def test_a_stale_table_is_found_and_written_anew(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stale = tmp_path / "stack.md"
    stale.write_text(f"before\n{tool.BEGIN}\nof last year\n{tool.END}\nafter\n")
    monkeypatch.setattr(tool, "PAGE", stale)
    assert tool.main(["--check"]) == 1
    assert tool.main([]) == 0
    text = stale.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "of last year" not in text
    assert tool.main(["--check"]) == 0


def test_a_page_without_marks_is_told(tool: ModuleType) -> None:
    with pytest.raises(ValueError, match="lacks the lines"):
        tool.document("nothing here")
