"""Splits Markdown files into sections."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Section", "anchor_of", "lines_with_code", "sections_of"]

_HEADING = re.compile(r"(#{1,6}) +(.+?) *#*$")
_FENCE = re.compile(r" *(`{3,}|~{3,})")


@dataclass(frozen=True)
class Section:
    """A heading and the text up to the next heading of any level.

    Attributes:
        level: Level of the heading, 1 for the title; 0 for text before the first heading.
        title: Text of the heading.
        body: The lines below it.
    """

    level: int
    title: str
    body: str

    @property
    def anchor(self) -> str:
        """The anchor of the heading; empty for the title and text before it."""
        return anchor_of(self.title) if self.level > 1 else ""


def anchor_of(title: str) -> str:
    """Return the anchor of a heading, as GitHub and `toc.slugify` of mkdocs.yml make it.

    Args:
        title: Text of the heading, in Markdown.
    """
    return re.sub(r"[^\w\- ]", "", title.replace("`", "").strip().lower()).replace(" ", "-")


def sections_of(text: str) -> list[Section]:
    """Return the sections of a file in their order.

    Args:
        text: The file.
    """
    found: list[Section] = []
    level, title, body = 0, "", [""]
    for line, is_code in lines_with_code(text):
        heading = None if is_code else _HEADING.fullmatch(line)
        if heading is None:
            body.append(line)
            continue
        found.append(Section(level, title, "\n".join(body).strip("\n")))
        level, title, body = len(heading[1]), heading[2], []
    found.append(Section(level, title, "\n".join(body).strip("\n")))
    return [section for section in found if section.level or section.body]


def lines_with_code(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each line, and whether it is part of a fenced block of code.

    Args:
        text: Markdown.
    """
    fence = ""
    for line in text.splitlines():
        marks = _FENCE.match(line)
        if fence:
            yield line, True
            if marks and marks[1].startswith(fence) and not line.strip(" `~"):
                fence = ""
        else:
            fence = marks[1] if marks else ""
            yield line, bool(fence)
