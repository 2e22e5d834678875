"""The rules' documentation is what the code says."""

from __future__ import annotations

from pathlib import Path

import pytest

from rule_runtime.engine.registry import available_rules
from rule_runtime.engine.rule import Rule
from tools import rule_documentation as tool

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def text() -> str:
    """The reference, which takes a second to make."""
    return str(tool.reference())


def test_the_documentation_is_not_stale() -> None:
    assert tool.main(["--check"]) == 0, f"run `{tool.COMMAND}`"


def test_stale_files_are_found_and_written_anew(
    text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tool, "reference", lambda: text)
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    monkeypatch.setattr(tool, "README", tmp_path / "README.md")
    monkeypatch.setattr(tool, "REFERENCE", tmp_path / "rules.md")
    for before in (None, "of last year"):
        if before is not None:
            tool.REFERENCE.write_text(before)
        assert tool.main(["--check"]) == 1
    assert tool.REFERENCE.read_text() == "of last year"
    assert tool.main([]) == 0
    assert tool.REFERENCE.read_text() == text
    assert tool.main(["--check"]) == 0


def test_the_reference_has_every_rule_and_parameter(text: str) -> None:
    for name, rule in available_rules().items():
        _, _, section = text.partition(f"\n### {name}\n")
        section = section.partition("\n### ")[0]
        assert tool._escaped(rule.summary()) in section
        for parameter in rule.parameters():
            assert f"| `{parameter.name}` |" in section


def test_the_table_is_short_and_has_every_rule() -> None:
    table = tool.document()
    assert len(table.split()) <= 2000
    for name, rule in available_rules().items():
        assert f"| [{name}](" in table
        assert tool._escaped(rule.summary()) in table


def test_a_rule_without_a_heading_is_refused() -> None:
    class Undocumented(Rule):
        """Finds nothing.

        How it decides:
            By guessing.
        """

        def check(self, step, memory):  # noqa: ANN001, ANN202
            raise NotImplementedError

    with pytest.raises(ValueError, match="Undocumented lacks Parameters, What to try"):
        tool.sections_of(Undocumented)


def test_items_of_lists_stay_apart() -> None:
    class Listed(Rule):
        """Finds nothing.

        How it decides:
            By guessing.
        Parameters:
            None.
        What to try:
            Two things:
            * the first one, of
              two lines;
            * a * b.

            And once more.
        """

        def check(self, step, memory):  # noqa: ANN001, ANN202
            raise NotImplementedError

    section = tool._section("Listed", Listed)
    shown = "**What to try.** Two things:\n\n* the first one, of two lines;\n* a \\* b.\n"
    assert f"{shown}\n\nAnd once more.\n".replace("\n\n\n", "\n\n") in section
    assert "By guessing" not in section  # the rule's page says it


def test_marks_of_markdown_are_shown_as_they_are() -> None:
    assert tool._escaped("a * b < `c * d`") == r"a \* b \< `c * d`"
    assert tool._table(("a",), [("|x|",)]) == "| a |\n| --- |\n| \\|x\\| |"


def test_the_first_table_of_the_results_is_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tool, "RESULTS", tmp_path / "RESULTS.md")
    assert "How well they find" not in tool.document()
    tool.RESULTS.write_text("# D\n\n### Sets\n\n| set |\n| 1 |\n\nText.\n\n| other |\n")
    assert "\n| set |\n| 1 |\n" in tool.document()
    assert "| other |" not in tool.document()
