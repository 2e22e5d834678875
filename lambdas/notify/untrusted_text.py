"""Sanitizes untrusted text for messages to people.

Names of tensors, jobs and rules, and findings about them, come from files that any training process
may write. They must not forge lines of a message, become links or markup in an e-mail or chat, or
hide text with special characters.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from rule_runtime.engine.outcome import shortened

__all__ = ["ascii_line", "plain_line"]

_TAG: Final = re.compile(r"<(?=[\w/!?@#])")  # `<b>`, `<!channel>`, `<http://x|y>`; not `a < 1`
_LINK: Final = re.compile(r"://")
_MARKDOWN_LINK: Final = re.compile(r"\](?=\s*[\(\[])")
# Also within words, because later quoting may change where a word begins.
_HOST: Final = re.compile(r"(www)\.", re.IGNORECASE)
_MENTION: Final = re.compile(r"@(?=here|channel|everyone)", re.IGNORECASE)


def plain_line(text: str, max_length: int) -> str:
    """Return a text as one line of plain words that mail programs do not convert into links.

    Args:
        text: Untrusted text.
        max_length: Maximum length, in characters.
    """
    # Categories C: control and format characters, including changes of writing direction, and
    # surrogates. Categories Z: all spaces and line separators.
    kept = (" " if unicodedata.category(c)[0] in "CZ" else c for c in text[: 2 * max_length])
    line = " ".join("".join(kept).split())
    line = _TAG.sub("< ", line)
    line = _LINK.sub(":/ /", line)
    line = _HOST.sub(r"\1 .", line)
    line = _MARKDOWN_LINK.sub("] ", line)
    line = _MENTION.sub("@ ", line)
    return shortened(line, max_length)


def ascii_line(text: str, max_length: int) -> str:
    """Return a text as a line of plain ASCII words, for a subject.

    Args:
        text: Untrusted text.
        max_length: Maximum length, in characters.
    """
    line = plain_line(text, 4 * max_length).encode("ascii", "replace").decode("ascii")
    return shortened(line, max_length)
