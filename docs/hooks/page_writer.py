"""Writes pages with the texts that their directives name.

Besides the directives of `inclusions.py`, a page may have

    <!-- table: event-fields status_event -->           a table of `code_tables.py`
    <!-- file: lambdas/contracts/test_events/notify.json -->        a file, as a block of code
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from code_tables import TABLES
from inclusions import IncludeError, Inclusions, directive_of, with_files_named
from readme_sections import lines_with_code
from repository_links import Linker

__all__ = ["PageWriter"]

_ASKING = re.compile(r"<!-- (include|table|file):")
_TABLE = re.compile(r"<!-- table: (?P<kind>[\w-]+) (?P<argument>[\w.-]+) -->")
_FILE = re.compile(r"<!-- file: (?P<path>[\w./-]+) -->")


class PageWriter:
    """Writes the Markdown of pages.

    Args:
        root: The repository.
        address: Its address, for links to files that are on no page.
        pages: The pages as they are in `docs/`, by their path below it.

    Raises:
        IncludeError: A text is missing, included twice, or not included as a whole.
    """

    def __init__(self, root: Path, address: str, pages: Mapping[str, str]) -> None:
        self._root = root
        whole = {page: with_files_named(root, text) for page, text in pages.items()}
        self._inclusions = Inclusions(root, whole)
        self._linker = Linker(root, address, self._inclusions)

    def written(self, markdown: str, page: str) -> str:
        """Return a page with its directives replaced and its links rewritten.

        Args:
            markdown: The page as it is in `docs/`.
            page: Its path below `docs/`.

        Raises:
            IncludeError: A text is missing, or a link leads nowhere.
        """
        parts: list[str] = []
        own: list[str] = []
        level, heading = 1, 1
        for line, is_code in lines_with_code(with_files_named(self._root, markdown)):
            text = None if is_code else self._directive_text(line, page, level)
            if text is not None:
                parts += [self._own_text(own, page), "", text, ""]
                own = []
                continue
            own.append(line)
            if line.startswith("#") and not is_code:
                heading = len(line.partition(" ")[0])
                level = heading + 1  # below the heading that it follows
            elif line.strip():
                level = max(heading, 2)  # beside the heading, which has a text of its own
        return "\n".join([*parts, self._own_text(own, page)])

    def _own_text(self, lines: list[str], page: str) -> str:
        return self._linker.rewritten("\n".join(lines), file=f"docs/{page}", page=page)

    def _directive_text(self, line: str, page: str, level: int) -> str | None:
        """Return the text of a directive, with headings from a level on; None for other lines."""
        if (directive := directive_of(line)) is not None:
            file, anchor = directive
            text = self._inclusions.text(file, anchor, level)
            return self._linker.rewritten(text, file=file, page=page)
        if (table := _TABLE.fullmatch(line.strip())) is not None and table["kind"] in TABLES:
            return TABLES[table["kind"]](self._root, table["argument"])
        if (file_line := _FILE.fullmatch(line.strip())) is not None:
            return self._code(file_line["path"], page)
        if _ASKING.match(line.strip()):
            raise IncludeError(f"{page}: unknown directive {line.strip()!r}")
        return None

    def _code(self, name: str, page: str) -> str:
        path = self._root / name
        if not path.is_file():
            raise IncludeError(f"{page}: there is no {name}")
        content = path.read_text(encoding="utf-8").rstrip("\n")
        return f'```{path.suffix[1:]} title="{path.name}"\n{content}\n```'
