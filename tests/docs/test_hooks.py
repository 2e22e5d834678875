"""How texts of the repository come onto the pages of the site."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from code_tables import event_fields, original_names
from hypothesis import given
from hypothesis import strategies as st
from inclusions import IncludeError
from page_writer import PageWriter
from readme_sections import anchor_of, lines_with_code, sections_of

from rule_runtime.smdebug_alias.names import MODULES

ADDRESS = "https://example.org/project"
ROOT = Path(__file__).resolve().parents[2]

README = """\
# engine

What it is; see [below](#the-costs) and [the parts](parts/README.md#wheels).

## Settings

Set them.

```sh
# not a heading
```

### The costs

Much. The code is in [code.py](code.py), `[not a link](nowhere)`, [folder](parts).

## Alarms

Look at [the costs](#the-costs).
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "parts").mkdir()
    (tmp_path / "README.md").write_text(README)
    (tmp_path / "code.py").write_text("pass\n")
    (tmp_path / "parts" / "README.md").write_text("# parts\n\nThey are:\n\n## Wheels\n\nFour.\n")
    return tmp_path


def written(root: Path, **pages: str) -> dict[str, str]:
    """Return pages as the site has them; `deploy__cost` is `deploy/cost.md`."""
    texts = {f"{name.replace('__', '/')}.md": text for name, text in pages.items()}
    writer = PageWriter(root, ADDRESS, texts)
    return {page: writer.written(text, page) for page, text in texts.items()}


PAGES = {
    "index": "# Engine\n\n<!-- include: README.md -->",
    "deploy__cost": "<!-- include: README.md#the-costs -->",
    "parts": "# Parts\n\n[Read it](../parts/README.md) <!-- include: parts/README.md -->",
}


class TestInclusions:
    def test_a_section_stands_where_it_is_asked_for_and_nowhere_else(self, root: Path) -> None:
        pages = written(root, **PAGES)
        assert "Much." in pages["deploy/cost.md"]
        assert "Much." not in pages["index.md"]
        assert "Set them." in pages["index.md"]
        assert "Look at" in pages["index.md"]
        assert "# not a heading" in pages["index.md"]

    def test_a_link_before_a_directive_is_for_github_alone(self, root: Path) -> None:
        assert "Read it" not in written(root, **PAGES)["parts.md"]

    def test_the_title_of_the_file_is_left_to_the_page(self, root: Path) -> None:
        assert [s.title for s in sections_of(written(root, **PAGES)["index.md"])] == [
            "Engine",
            "Settings",
            "Alarms",
        ]

    def test_headings_begin_below_the_one_that_they_follow(self, root: Path) -> None:
        pages = {
            "one": "<!-- include: README.md#the-costs -->",
            "two": "# T\n\n## Under\n\n<!-- include: README.md#settings -->",
            "three": "# T\n\n## Beside\n\nText.\n\n<!-- include: README.md#alarms -->",
            "rest": "# T\n\n<!-- include: README.md -->",
        }
        levels = {
            name: [(s.level, s.title) for s in sections_of(text) if s.title != "T"]
            for name, text in written(root, **pages).items()
        }
        assert levels["one.md"] == [(1, "The costs")]
        assert levels["two.md"] == [(2, "Under"), (3, "Settings")]
        assert levels["three.md"] == [(2, "Beside"), (2, "Alarms")]

    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            ("<!-- include: missing.md -->", "there is no missing.md"),
            ("<!-- include: README.md#nothing -->", "0 headings #nothing"),
            ("<!-- include: README.md -->", "is on"),
            ("<!-- include: code.py -->", "unknown directive"),
            ("<!-- include: none/*.md -->", "no file fits"),
            ("<!-- table: of-nothing x -->", "unknown directive"),
            ("<!-- file: missing.json -->", "there is no missing.json"),
        ],
    )
    def test_a_line_that_asks_for_nothing_there_is_reported(
        self, root: Path, line: str, reason: str
    ) -> None:
        with pytest.raises(IncludeError, match=reason):
            written(root, **PAGES, wrong=f"# Wrong\n\n{line}")

    def test_a_file_of_which_only_a_section_is_on_the_site_is_reported(self, root: Path) -> None:
        with pytest.raises(IncludeError, match="no page includes the rest"):
            written(root, one="<!-- include: README.md#alarms -->")

    def test_files_of_a_pattern_have_their_titles_for_headings(self, root: Path) -> None:
        pages = {"index": PAGES["index"], "all": "# All\n\n<!-- include: */README.md -->"}
        sections = sections_of(written(root, **pages)["all.md"])
        assert [(s.level, s.title) for s in sections] == [(1, "All"), (2, "parts"), (3, "Wheels")]
        link = "# Page\n\n[x](../parts/README.md)"
        assert "[x](all.md#parts)" in written(root, **pages, page=link)["page.md"]

    def test_lines_in_code_are_left_alone(self, root: Path) -> None:
        text = "# Page\n\n```md\n<!-- include: README.md -->\n[x](nowhere.md)\n```"
        assert written(root, **PAGES, page=text)["page.md"].strip() == text


class TestLinks:
    def test_lead_to_the_page_that_has_the_section(self, root: Path) -> None:
        pages = written(root, **PAGES)
        assert "[below](deploy/cost.md#the-costs)" in pages["index.md"]
        assert "[the parts](parts.md#wheels)" in pages["index.md"]

    def test_within_a_page_stay_there(self, root: Path) -> None:
        page = written(root, index=PAGES["index"], parts=PAGES["parts"])["index.md"]
        assert "[below](#the-costs)" in page

    def test_to_other_files_lead_to_the_repository(self, root: Path) -> None:
        page = written(root, **PAGES)["deploy/cost.md"]
        assert f"[code.py]({ADDRESS}/blob/main/code.py)" in page
        assert f"[folder]({ADDRESS}/tree/main/parts)" in page
        assert "`[not a link](nowhere)`" in page

    def test_of_pages_lead_out_of_docs_as_on_github(self, root: Path) -> None:
        text = "# Page\n\n[a](../README.md#alarms) [b](../code.py) [c](other.md#x) [d](https://e.f)"
        page = written(root, **PAGES, page=text)["page.md"]
        assert f"[a](index.md#alarms) [b]({ADDRESS}/blob/main/code.py)" in page
        assert "[c](other.md#x) [d](https://e.f)" in page

    def test_with_the_repositorys_address_stay_on_the_site(self, root: Path) -> None:
        own = f"{ADDRESS}/blob/main"
        text = (
            f"# Page\n\n[a]({own}/README.md#alarms) [b]({own}/docs/a/b.md#x) [c]({own}/code.py)\n"
            f"![d]({ADDRESS}/raw/main/docs/images/d.png)"
        )
        page = written(root, **PAGES, a__page=text)["a/page.md"]
        assert f"[a](../index.md#alarms) [b](b.md#x) [c]({own}/code.py)" in page
        assert "![d](../images/d.png)" in page

    @pytest.mark.parametrize("target", ["../nowhere.py", "../../outside", "../README.md#nothing"])
    def test_that_lead_nowhere_are_reported(self, root: Path, target: str) -> None:
        with pytest.raises(IncludeError, match=r"which does not exist|has no heading"):
            written(root, **PAGES, page=f"# Page\n\n[x]({target})")


@pytest.mark.parametrize(
    ("title", "anchor"),
    [
        ("What it costs", "what-it-costs"),
        ("A new version, and the end", "a-new-version-and-the-end"),
        ("The command `stepwatch` (`pip install`)", "the-command-stepwatch-pip-install"),
        ("Tests - and more", "tests---and-more"),
    ],
)
def test_anchors_are_those_of_github(title: str, anchor: str) -> None:
    assert anchor_of(title) == anchor


LINES = st.lists(
    st.sampled_from(["# a", "## b", "### b c", "text", "", "```", "````", "~~~", "``` x", "* # d"])
)


@given(LINES)
def test_no_line_is_lost_or_moved(lines: list[str]) -> None:
    sections = sections_of("\n".join(lines))
    found = "\n".join(
        f"{'#' * s.level} {s.title}\n{s.body}" if s.level else s.body for s in sections
    )
    assert found.split() == "\n".join(lines).split()


@given(LINES)
def test_what_is_in_a_fence_is_code(lines: list[str]) -> None:
    fenced = ["```py", *(line for line in lines if not line.startswith("```")), "```", "after"]
    reported = [is_code for _, is_code in lines_with_code("\n".join(fenced))]
    assert reported == [True] * (len(fenced) - 1) + [False]


class TestTables:
    @pytest.mark.parametrize("schema", ["status_event", "stop_overdue_event", "job_summary_event"])
    def test_every_field_of_an_event_has_a_row(self, schema: str) -> None:
        path = ROOT / "lambdas" / "contracts" / "schemas" / f"{schema}.json"
        definitions = json.loads(path.read_text())["definitions"]
        table = event_fields(ROOT, schema)
        for name in definitions["Detail"]["properties"]:
            assert f"| `{name}` |" in table
        assert {row.count("|") for row in table.splitlines()} == {4}

    def test_fields_within_fields_have_their_path(self) -> None:
        table = event_fields(ROOT, "status_event")
        assert (
            "| `DebugRuleEvaluationStatuses[].RuleEvaluationStatus` | text | `InProgress`" in table
        )
        assert "| `Evidence.value` | number, or its name |" in table
        assert "| `Evidence` | object, if known |" in table

    @pytest.mark.parametrize("package", ["smdebug", "smdebug_rulesconfig"])
    def test_every_name_of_the_original_has_its_place(self, package: str) -> None:
        rows = {
            cells[1].strip(" `"): cells[2]
            for cells in (row.split("|") for row in original_names(ROOT, package).splitlines()[2:])
        }
        served = {m: n for m, n in MODULES.items() if m.split(".")[0] == package and n}
        assert rows.keys() == served.keys()
        for module, names in served.items():
            assert sorted(rows[module].strip().strip("`").split("` `")) == sorted(names)
