"""The examples in the tutorials of frameworks."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["example"]

TUTORIALS = Path(__file__).resolve().parents[2] / "docs" / "tutorials"


def example(page: str) -> str:
    """Return the first example of a tutorial.

    Args:
        page: Name of the tutorial, such as `lightning`.
    """
    text = (TUTORIALS / f"{page}.md").read_text(encoding="utf-8")
    found = re.search(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert found is not None, page
    return found[1]
