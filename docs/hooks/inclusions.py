"""Assigns each text of the repository to exactly one page of the site.

A page includes a text by a directive on a line of its own:

    <!-- include: infra/README.md -->                   the parts that no other directive includes
    <!-- include: infra/README.md#add-a-setting -->     a section with its subsections
    <!-- include: examples/*/README.md -->              each of these files, under its own title

A link may stand before a directive: GitHub shows it, and the site shows the text in its place.

So a new section of a README appears on the site by itself, and nothing appears twice.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from readme_sections import Section, anchor_of, lines_with_code, sections_of

__all__ = ["IncludeError", "Inclusions", "directive_of", "with_files_named"]

_SEVERAL = re.compile(r"<!-- include: (?P<pattern>[\w./-]*\*[\w./*-]*\.md) -->")
_LINK = r"(?:\[[^\]]+\]\([^)\s]+\) )?"
_DIRECTIVE = re.compile(_LINK + r"<!-- include: (?P<file>[\w./-]+\.md)(?:#(?P<anchor>[\w-]+))? -->")


class IncludeError(ValueError):
    """A text is missing, included twice, or not included."""


def directive_of(line: str) -> tuple[str, str] | None:
    """Return file and anchor of an include directive; None for any other line.

    Args:
        line: The line.
    """
    match = _DIRECTIVE.fullmatch(line.strip())
    return None if match is None else (match["file"], match["anchor"] or "")


def with_files_named(root: Path, markdown: str) -> str:
    """Expand each directive with a pattern to a heading and a directive per file.

    Args:
        root: The repository.
        markdown: The page.

    Raises:
        IncludeError: No file fits a pattern.
    """
    lines: list[str] = []
    for line, is_code in lines_with_code(markdown):
        several = None if is_code else _SEVERAL.fullmatch(line.strip())
        if several is None:
            lines.append(line)
            continue
        files = sorted(root.glob(several["pattern"]))
        if not files:
            raise IncludeError(f"no file fits {several['pattern']}")
        for file in files:
            lines += [f"## {_title(file)}", "", f"<!-- include: {file.relative_to(root)} -->", ""]
    return "\n".join(lines)


class Inclusions:
    """The texts of the repository, and the pages that include them.

    Args:
        root: The repository.
        pages: The Markdown of the pages, by their path below `docs/`.

    Raises:
        IncludeError: A text is missing, included twice, or not included as a whole.
    """

    def __init__(self, root: Path, pages: Mapping[str, str]) -> None:
        self._root = root
        self._pages: dict[tuple[str, str], str] = {}
        self._under_their_titles: set[str] = set()
        for page, text in pages.items():
            lines = [line for line in _prose(text) if line.strip()]
            for line, before in zip(lines, ["", *lines], strict=False):
                if (directive := directive_of(line)) is not None:
                    self._take(page, *directive, before=before)
        self._owners = {file: self._owners_of(file) for file, anchor in self._pages if not anchor}
        for file, anchor in self._pages:
            if file not in self._owners:
                raise IncludeError(
                    f"{self._pages[file, anchor]} includes a section of {file}, and no page "
                    f"includes the rest: add <!-- include: {file} --> to one"
                )

    @property
    def files(self) -> frozenset[str]:
        """The included files."""
        return frozenset(self._owners)

    def place_of(self, file: str, anchor: str = "") -> tuple[str, str]:
        """Return the page that includes a section, and its anchor there.

        Args:
            file: The file.
            anchor: Anchor of the section; empty for the beginning of the file.

        Raises:
            IncludeError: The file has no such section.
        """
        for section, owner in self._owners[file]:
            if section.anchor == anchor:
                is_titled = not anchor and file in self._under_their_titles
                return self._pages[file, owner], anchor_of(section.title) if is_titled else anchor
        raise IncludeError(f"{file} has no heading #{anchor}")

    def text(self, file: str, anchor: str, level: int) -> str:
        """Return the text of a directive, without the title of the file.

        Args:
            file: The file.
            anchor: Anchor of the section; empty for the parts that no other directive includes.
            level: Level that its highest headings get.
        """
        lines: list[str] = []
        taken = [section for section, owner in self._owners[file] if owner == anchor]
        shift = level - (taken[0].level if anchor else 2)
        for section in taken:
            if section.level > 1:
                lines += ["", f"{'#' * (section.level + shift)} {section.title}", ""]
            lines += section.body.splitlines()
        return "\n".join(lines)

    def _take(self, page: str, file: str, anchor: str, *, before: str) -> None:
        if not (self._root / file).is_file():
            raise IncludeError(f"{page}: there is no {file}")
        if (file, anchor) in self._pages:
            raise IncludeError(f"{file}#{anchor} is on {page} and on {self._pages[file, anchor]}")
        self._pages[file, anchor] = page
        if before.startswith("##") and before.lstrip("# ") == _title(self._root / file):
            self._under_their_titles.add(file)

    def _owners_of(self, file: str) -> list[tuple[Section, str]]:
        """Return the sections of a file, each with the anchor of its directive."""
        wanted = {anchor for name, anchor in self._pages if name == file}
        sections = sections_of((self._root / file).read_text(encoding="utf-8"))
        _check_anchors(file, sections, wanted)
        owners: list[tuple[Section, str]] = []
        above: list[tuple[int, str]] = []
        for section in sections:
            while above and above[-1][0] >= section.level:
                above.pop()
            if section.anchor in wanted and section.anchor:
                above.append((section.level, section.anchor))
            owners.append((section, above[-1][1] if above else ""))
        return owners


def _title(file: Path) -> str:
    return sections_of(file.read_text(encoding="utf-8"))[0].title


def _prose(text: str) -> Iterable[str]:
    return (line for line, is_code in lines_with_code(text) if not is_code)


def _check_anchors(file: str, sections: Iterable[Section], wanted: set[str]) -> None:
    count = Counter(section.anchor for section in sections if section.level > 1)
    for anchor in wanted - {""}:
        if count[anchor] != 1:
            raise IncludeError(f"{file} has {count[anchor]} headings #{anchor}, not one")
