"""Makes texts from files safe to display."""

from __future__ import annotations

from typing import Final

__all__ = ["shown_text"]

_MAX_LENGTH: Final = 160


def shown_text(value: object, max_length: int = _MAX_LENGTH) -> str:
    """Return a text without non-printable characters; shortens the middle of a long text.

    Names from files must neither change the writing direction nor fill a page.
    """
    text = "".join(c if c.isprintable() else "?" for c in str(value)[: 4 * max_length])
    if len(text) <= max_length:
        return text
    half = (max_length - 1) // 2
    return f"{text[:half]}\u2026{text[-half:]}"
