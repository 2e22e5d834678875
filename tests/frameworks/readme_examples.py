"""The examples in the hook's documentation."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["example"]

ROOT = Path(__file__).resolve().parents[2]


def example(section: str) -> str:
    """Return the first example of a section of hook_layer/README.md."""
    text = (ROOT / "hook_layer" / "README.md").read_text()
    found = re.search(rf"^## {section}$.*?^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert found is not None, section
    return found[1]
