"""Tables and texts of the commands on wide and narrow terminals."""

from __future__ import annotations

import inspect
import io
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from rule_runtime.cli.output import rules_table
from rule_runtime.cli.tables import Records, harmless, reflowed
from rule_runtime.engine.registry import available_rules

LONG = "model.layers.31.self_attention.query_projection.weight"


def shown(records: Records, width: int) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=width).print(records)
    return file.getvalue().splitlines()


def table() -> Records:
    records = Records("rule", "status", "step", "details", whole=("status", "step"))
    records.add_row("PoorWeightInitialization", Text("not evaluated"), "", "no weights were saved")
    records.add_row(LONG, "NoIssuesFound", "123456", "[b]is no markup[/b] " * 6)
    return records


@pytest.mark.parametrize("width", [20, 30, 40, 60, 80, 120, 200])
def test_nothing_is_cut_at_any_width(width: int) -> None:
    lines = shown(table(), width)
    assert max(map(len, lines)) <= width
    reported = "\n".join(lines)
    assert "…" not in reported
    for verdict in ("not evaluated", "NoIssuesFound", "123456"):
        assert verdict in reported or width < 30
    letters = re.sub(r"[\s│]", "", reported)
    assert (
        letters.count("[b]isnomarkup[/b]") == 6 or width > 40
    )  # in cells other columns lie between


@pytest.mark.parametrize("width", [76, 80, 100, 120, 160])
def test_no_table_is_wider_than_the_terminal(width: int) -> None:
    records = Records("rule", "status", "step", "details", whole=("status", "step"))
    details = "gradient/logvar.bias: norm 0.00095 < 1, 3 steps in a row (worker_0, TRAIN)"
    name = "examples/quiet_layer.py:QuietLayer:threshold=1"
    records.add_row(name, "IssuesFound", "20", details)
    lines = shown(records, width)
    assert lines[0].endswith("┓")
    assert all(line.endswith("│") and len(line) <= width for line in lines[3:-1])
    cells = [line.strip("│").split("│") for line in lines[3:-1]]
    assert "".join(cell[0].strip() for cell in cells) == name
    assert "".join(cell[3] for cell in cells).replace(" ", "") == details.replace(" ", "")
    assert len(cells) == 1 or width < 150


def test_a_wide_terminal_gets_a_table_and_a_narrow_one_a_list() -> None:
    assert shown(table(), 120)[0].startswith("┏")
    narrow = shown(table(), 40)
    assert narrow[0].strip() == "PoorWeightInitialization"
    assert narrow[1].strip() == "status: not evaluated"


def test_headings_are_broken_rather_than_numbers_and_short_names() -> None:
    records = Records(
        "tensor", "largest, relative", "steps in common", whole=("largest, relative",)
    )
    records.add_row("CrossEntropyLoss_output_0", "1.234e-05", "60")
    lines = shown(records, 70)
    assert max(map(len, lines)) <= 70
    assert any("CrossEntropyLoss_output_0" in line and "1.234e-05" in line for line in lines)


@given(
    cells=st.lists(st.text("ab c", max_size=60), min_size=3, max_size=3), width=st.integers(24, 200)
)
def test_any_cells_are_shown_whole(cells: list[str], width: int) -> None:
    records = Records("name", "status", "details", whole=("status",))
    records.add_row(cells[0], cells[1][:10], cells[2])
    lines = shown(records, width)
    assert max(map(len, lines), default=0) <= width
    letters = sum(cell.count("b") for cell in (cells[0], cells[1][:10], cells[2]))
    reported = "".join(line for line in lines if "details" not in line and "status:" not in line)
    assert reported.count("b") <= letters
    assert "".join(lines).count("b") >= letters


@given(text=st.text(st.characters(categories=("Cc", "Cf", "L", "Zs", "Zl"))))
def test_no_text_is_a_command_to_the_terminal(text: str) -> None:
    reported = harmless(text)
    assert len(reported) == len(text)
    assert all(c.isprintable() or c in "\n\t" for c in reported)
    assert all(c == was for c, was in zip(reported, text, strict=True) if was.isprintable())
    assert reported.splitlines() == reported.split("\n")[: len(reported.splitlines())]


@pytest.mark.parametrize("width", [28, 120])
def test_cells_are_made_harmless_and_keep_their_colours(width: int) -> None:
    records = Records("rule", "details")
    records.add_row("a\x1b[2Jb", Text("c\x1b]52;c;Zw==\x9cd", style="red"))
    assert not [line for line in shown(records, width) if not line.isprintable()]
    reported = " ".join(shown(records, width))
    assert "a?[2Jb" in reported
    assert "c?]52;c;Zw==?d" in reported
    file = io.StringIO()
    Console(file=file, width=width, force_terminal=True, color_system="standard").print(records)
    assert "\x1b[31mc?]52" in file.getvalue()


@pytest.mark.parametrize("width", [40, 60, 80, 100])
@pytest.mark.parametrize("name", sorted(available_rules()))
def test_documentation_fills_the_width_and_loses_no_word(name: str, width: int) -> None:
    documentation = inspect.getdoc(available_rules()[name]) or ""
    lines = reflowed(documentation, width).splitlines()
    assert " ".join(lines).split() == documentation.split()
    too_long = [line for line in lines if len(line) > width]
    assert not [line for line in too_long if len(line.split()) > 1 and len(line.split()[0]) < 20]
    ragged = [
        (line, following)
        for line, following in pairwise(lines)
        if following.startswith("    ") and line.startswith("    ")
        and not re.match(r"\s*(\w+: |[-*] )", following)
        and len(line) + 1 + len(following.split()[0]) <= width
    ]  # fmt: skip
    assert not ragged
    assert [line for line in lines if line.endswith(":") and line[:1].strip()] == [
        line for line in documentation.splitlines() if line.endswith(":") and line[:1].strip()
    ]


def test_rules_are_told_on_a_narrow_terminal() -> None:
    found = {"PoorWeightInitialization": available_rules()["PoorWeightInitialization"]}
    lines = shown(rules_table(found), 40)
    assert lines[0].strip() == "PoorWeightInitialization"
    assert "…" not in "".join(lines)
