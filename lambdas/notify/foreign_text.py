"""Texts that somebody else wrote, made fit for a message to people.

Names of tensors, jobs and rules, and what a rule says of them, come from files that any training
process may write. A message must not become somebody else's: no line of it may be forged, nothing
in it may turn into a link or into markup where it is shown (an e-mail, a chat), and no characters
may hide what it says.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

__all__ = ["ascii_line", "plain_line"]

_ELLIPSIS: Final = "..."
_TAG: Final = re.compile(r"<(?=[\w/!?@#])")  # `<b>`, `<!channel>`, `<http://x|y>`; not `a < 1`
_LINK: Final = re.compile(r"://")
_MARKDOWN_LINK: Final = re.compile(r"\](?=\s*[\(\[])")
# Within words too: what begins and ends a word may come of how the text is quoted later.
_HOST: Final = re.compile(r"(www)\.", re.IGNORECASE)
_MENTION: Final = re.compile(r"@(?=here|channel|everyone)", re.IGNORECASE)


def plain_line(text: str, max_length: int) -> str:
    """Return a text as one line of plain words that no mail program takes for more.

    Args:
        text: What somebody else wrote.
        max_length: Longest line, in characters.
    """
    # Categories C: control and format characters, among them those that turn the direction of
    # writing, and surrogates. Categories Z: every kind of space, and the line separators.
    kept = (" " if unicodedata.category(c)[0] in "CZ" else c for c in text[: 2 * max_length])
    line = " ".join("".join(kept).split())
    line = _TAG.sub("< ", line)
    line = _LINK.sub(":/ /", line)
    line = _HOST.sub(r"\1 .", line)
    line = _MARKDOWN_LINK.sub("] ", line)
    line = _MENTION.sub("@ ", line)
    return _shortened(line, max_length)


def ascii_line(text: str, max_length: int) -> str:
    """Return a text as a line of plain words in ASCII, as a subject must be.

    Args:
        text: What somebody else wrote.
        max_length: Longest line, in characters.
    """
    line = plain_line(text, 4 * max_length).encode("ascii", "replace").decode("ascii")
    return _shortened(line, max_length)


def _shortened(line: str, max_length: int) -> str:
    return line if len(line) <= max_length else line[: max_length - len(_ELLIPSIS)] + _ELLIPSIS
