"""The blocks of code on the pages that are written for the site alone.

Texts that pages take in are tested where they live.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["DOCS", "ROOT", "Block", "Command", "blocks_of", "pages"]

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

_BLOCK = re.compile(
    r'^```(?P<language>\w*)(?: title="(?P<title>[\w.]+)")?(?P<rest>[^\n]*)\n(?P<text>.*?)^```$',
    re.DOTALL | re.MULTILINE,
)
_STATUS = re.compile(r"  # exit status (\d+)$")
_PLACEHOLDER = re.compile(r"<[\w ]+>")


@dataclass(frozen=True)
class Command:
    """A line of a block that a shell runs.

    Attributes:
        line: The line, without what is said of it.
        status: The exit status that the page says it has.
    """

    line: str
    status: int = 0

    @property
    def has_placeholder(self) -> bool:
        """Whether the reader has to put something in."""
        return _PLACEHOLDER.search(self.line) is not None

    @property
    def words(self) -> str:
        """The line with a name in the place of each placeholder."""
        return _PLACEHOLDER.sub("some-name", self.line)


@dataclass(frozen=True)
class Block:
    """A block of code.

    Attributes:
        page: The page, below `docs/`.
        language: Its language.
        title: Name of the file that it is; empty for none.
        text: The code.
    """

    page: str
    language: str
    title: str
    text: str

    def commands(self) -> list[Command]:
        """Return the lines of a block for a shell."""
        found = []
        for line in self.text.splitlines():
            if not line.strip() or line.startswith("#"):
                continue
            status = _STATUS.search(line)
            bare = line.split("  # ")[0].rstrip()
            found.append(Command(bare, int(status[1]) if status else 0))
        return found


def pages() -> list[str]:
    """Return the pages, below `docs/`."""
    return sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))


def blocks_of(page: str) -> list[Block]:
    """Return the blocks of a page in their order.

    Args:
        page: The page, below `docs/`.
    """
    text = (DOCS / page).read_text(encoding="utf-8")
    found = list(_BLOCK.finditer(text))
    assert len(found) * 2 == len(re.findall(r"^```", text, re.MULTILINE)), f"{page}: a block is odd"
    assert not [block["rest"] for block in found if block["rest"]], f"{page}: unknown attributes"
    return [Block(page, m["language"], m["title"] or "", m["text"]) for m in found]
