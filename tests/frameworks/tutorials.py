"""The examples in the tutorials of frameworks."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["example"]

TUTORIALS = Path(__file__).resolve().parents[2] / "docs" / "tutorials"


def example(page: str, number: int = 0) -> str:
    """Return an example of a tutorial.

    Args:
        page: Name of the tutorial, such as `lightning`.
        number: Which one, from 0.
    """
    text = (TUTORIALS / f"{page}.md").read_text(encoding="utf-8")
    found = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(found) > number, page
    return str(found[number])
