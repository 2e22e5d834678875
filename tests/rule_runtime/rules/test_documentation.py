"""The rules' documentation is what the code says."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from rule_runtime.engine.registry import available_rules
from rule_runtime.engine.rule import Rule

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    path = ROOT / "tools" / "rule_documentation.py"
    spec = importlib.util.spec_from_file_location("rule_documentation", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def text(tool: ModuleType) -> str:
    """The documentation, which takes a second to make."""
    return str(tool.document())


def test_the_documentation_is_not_stale(tool: ModuleType) -> None:
    assert tool.main(["--check"]) == 0, f"run `{tool.COMMAND}`"


def test_a_stale_file_is_found_and_written_anew(
    tool: ModuleType, text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stale = tmp_path / "README.md"
    monkeypatch.setattr(tool, "document", lambda: text)
    monkeypatch.setattr(tool, "README", stale)
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    for before in (None, "of last year"):
        if before is not None:
            stale.write_text(before)
        assert tool.main(["--check"]) == 1
    assert stale.read_text() == "of last year"
    assert tool.main([]) == 0
    assert stale.read_text() == text
    assert tool.main(["--check"]) == 0


def test_every_rule_and_parameter_is_told(tool: ModuleType, text: str) -> None:
    for name, rule in available_rules().items():
        _, _, section = text.partition(f"\n### {name}\n")
        section = section.partition("\n### ")[0]
        assert tool._escaped(rule.summary()) in section
        for parameter in rule.parameters():
            assert f"| `{parameter.name}` |" in section
        assert f"[{name}](#{name.lower()})" in text


def test_a_rule_without_a_heading_is_refused(tool: ModuleType) -> None:
    class Undocumented(Rule):
        """Finds nothing.

        What it detects:
            Nothing.
        """

        def check(self, step, memory):  # noqa: ANN001, ANN202
            raise NotImplementedError

    with pytest.raises(ValueError, match="Undocumented lacks Why it matters"):
        tool.sections_of(Undocumented)


def test_items_of_lists_stay_apart(tool: ModuleType) -> None:
    class Listed(Rule):
        """Finds nothing.

        What it detects:
            Two things:
            * the first one, of
              two lines;
            * a * b.
        Why it matters:
            * Once.

            It does not.
        How it decides:
            By guessing.

            And once more.
        Parameters:
            None.
        What to try:
            Nothing.
        Known false alarms:
            All.
        Source:
            None.
        """

        def check(self, step, memory):  # noqa: ANN001, ANN202
            raise NotImplementedError

    message = tool._section("Listed", Listed)
    shown = "**What it detects.** Two things:\n\n* the first one, of two lines;\n* a \\* b.\n"
    assert shown in message
    assert "**Why it matters.**\n\n* Once.\n\nIt does not.\n" in message
    assert "**How it decides.** By guessing.\n\nAnd once more.\n" in message


def test_marks_of_markdown_are_shown_as_they_are(tool: ModuleType) -> None:
    assert tool._escaped("a * b < `c * d`") == r"a \* b \< `c * d`"
    assert tool._table(("a",), [("|x|",)]) == "| a |\n| --- |\n| \\|x\\| |"


def test_the_summary_of_the_results_are_the_tables_before_their_sections(tool: ModuleType) -> None:
    results = "# Detection\n\na\n\n### One\n\n| b |\n\n### Two\n\n| c |\n\n## Other\n\n### d\n"
    assert tool.summary(results) == "### One\n\n| b |\n\n### Two\n\n| c |\n"
    assert tool.summary("# Detection\n") == ""


def test_the_results_are_told_with_their_summary(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tool, "RESULTS", tmp_path / "RESULTS.md")
    assert "How well they find" not in tool.document()
    tool.RESULTS.write_text("# D\n\n### Held-out programs\n\n| found |\n\n## Rest\n\nx\n")
    text = tool.document()
    assert "## How well they find" in text
    assert "\n### Held-out programs\n\n| found |\n" in text
    assert "## Rest" not in text
