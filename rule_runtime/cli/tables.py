"""Tables for narrow terminals, and texts without control characters."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterator
from typing import Final

from rich.box import HEAVY_HEAD, Box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

__all__ = ["Records", "harmless", "reflowed"]

_MAX_NAME: Final = 32
"""Names up to this length stay on one line."""
_MIN_TEXT: Final = 16
"""Minimum width of a text column in a table."""
_ENTRY: Final = re.compile(r"[A-Za-z_]\w*: ")


class Records:
    """Rows shown as a table if it fits, otherwise as a list; nothing is cut.

    The first column has the rows' names; those up to `max_name` characters stay on one line.
    Columns in `whole` are never wrapped. Without a box, there are no headings.
    """

    def __init__(
        self,
        *columns: str,
        whole: Collection[str] = (),
        max_name: int = _MAX_NAME,
        box: Box | None = HEAVY_HEAD,
        show_lines: bool = False,
    ) -> None:
        self._max_name = max_name
        self._columns = columns
        self._whole = frozenset(whole)
        self._box = box
        self._show_lines = show_lines
        self._rows: list[list[Text]] = []

    def add_row(self, *cells: Text | str) -> None:
        """Add a row of texts; markup and terminal control characters have no effect."""
        self._rows.append([_harmless_text(cell) for cell in cells])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table or the list."""
        if self._least_width() <= options.max_width:
            yield self._table(options.max_width)
        else:
            yield from self._list()

    def _least_width(self) -> int:
        return sum(self._least(at) + 3 for at in range(len(self._columns))) + 1

    def _table(self, max_width: int) -> Table:
        columns = []
        for at, name in enumerate(self._columns):
            least = self._least(at)
            # rich does not shrink columns with a fixed width. It shrinks columns with a minimum
            # width even if the table is then too wide.
            width = self._name_width(max_width) if at == 0 else None
            width = least if name in self._whole else width
            columns.append(Column(name, overflow="fold", min_width=least, width=width))
        has_box = self._box is not None
        table = Table(*columns, box=self._box, show_header=has_box, show_lines=self._show_lines)
        for row in self._rows:
            table.add_row(*row)
        return table

    def _name_width(self, max_width: int) -> int:
        """Return the width of the longest name, or less if the other texts need the space."""
        others = [at for at in range(1, len(self._columns)) if self._columns[at] not in self._whole]
        taken = sum(self._least(at) for at in range(1, len(self._columns)) if at not in others)
        free = max_width - taken - 3 * len(self._columns) - 1
        share = free // (1 + len(others))
        room = free - sum(min(self._widest(at), share) for at in others)
        return max(self._least(0), min(self._widest(0), room))

    def _widest(self, at: int) -> int:
        """Return the width of a column's longest cell, or of the longest word in its heading."""
        words = self._columns[at].split() if self._box is not None else []
        return max([row[at].cell_len for row in self._rows] + [len(word) for word in words] + [0])

    def _least(self, at: int) -> int:
        """Return the minimum width of a column, so that short names are not wrapped."""
        widest = self._widest(at)
        if self._columns[at] in self._whole:
            return widest
        return min(widest, self._max_name if at == 0 else _MIN_TEXT)

    def _list(self) -> Iterator[Text | Padding]:
        for name, *cells in self._rows:
            yield Text(name.plain, style="bold", overflow="fold")
            for heading, cell in zip(self._columns[1:], cells, strict=True):
                if cell.plain:
                    line = Text(f"{heading}: " if heading and self._box else "", overflow="fold")
                    yield Padding(line.append_text(cell), (0, 0, 0, 2))


def harmless(text: str) -> str:
    """Return a text with a question mark for each non-printable character except newline and tab.

    Other users may write the files that texts come from. An escape sequence could control the
    terminal, for example set the clipboard.
    """
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)


def _harmless_text(cell: Text | str) -> Text:
    if isinstance(cell, str):
        return Text(harmless(cell))
    cell = cell.copy()
    cell.plain = harmless(cell.plain)  # the length stays the same, so that styles stay in place
    return cell


def reflowed(documentation: str, width: int) -> str:
    """Return a docstring with wrapped paragraphs; headings and entries stay separate."""
    return "\n".join(
        textwrap.fill(
            " ".join(line.strip() for line in part),
            width,
            initial_indent=_indentation(part[0]),
            subsequent_indent=_indentation(part[1] if _is_entry(part) else part[0]),
            break_long_words=False,
            break_on_hyphens=False,
        )
        for part in _parts(documentation)
    )


def _parts(documentation: str) -> Iterator[list[str]]:
    """Yield the lines of each paragraph, heading and entry; an empty list for an empty line."""
    part: list[str] = []
    for line in documentation.splitlines():
        deeper = bool(part) and len(_indentation(line)) > len(_indentation(part[0]))
        is_new = not line.strip() or _is_heading(line) or _starts_entry(line)
        if part and ((is_new and not deeper) or _is_heading(part[-1])):
            yield part
            part = []
        if line.strip():
            part.append(line)
        else:
            if part:
                yield part
            part = []
            yield [""]
    if part:
        yield part


def _indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _is_heading(line: str) -> bool:
    return bool(line) and not line[0].isspace() and line.endswith(":")


def _starts_entry(line: str) -> bool:
    return _ENTRY.match(line.strip()) is not None or line.strip().startswith(("- ", "* "))


def _is_entry(part: list[str]) -> bool:
    return len(part) > 1 and _indentation(part[1]) != _indentation(part[0])
