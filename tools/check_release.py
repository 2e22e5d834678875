"""Checks that a tag can be released: version and date are the same in every file.

`python tools/check_release.py v0.1.0` prints what to change, and exits with status 1 if anything
is wrong. It needs Python 3.11 and no packages.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import tomllib

__all__ = ["mistakes"]

ROOT = Path(__file__).resolve().parent.parent


def mistakes(root: Path, tag: str) -> list[str]:
    """Return what prevents a release; empty if nothing does.

    Args:
        root: The checkout.
        tag: The tag, such as v0.1.0.
    """
    version = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    cited, released = (
        _value(root / "CITATION.cff", rf"^{key}: (.+)$") for key in ("version", "date-released")
    )
    heading = _value(root / "CHANGELOG.md", r"^## (.+)$")
    expected = f"{version} ({released})"
    found = []
    if tag != f"v{version}":
        found.append(f"the tag is {tag}; pyproject.toml has the version {version}")
    if cited != version:
        found.append(f"CITATION.cff has the version {cited}; set it to {version}")
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", released):
        found.append(f"CITATION.cff has date-released={released!r}; set it to the date of release")
    if heading != expected:
        found.append(f"CHANGELOG.md begins with '## {heading}'; change it to '## {expected}'")
    return found


def _value(file: Path, pattern: str) -> str:
    match = re.search(pattern, file.read_text(encoding="utf-8"), re.MULTILINE)
    return match[1] if match else ""


if __name__ == "__main__":
    if len(sys.argv) != 2:  # noqa: PLR2004 - the script and the tag
        sys.exit("usage: check_release.py TAG")
    if wrong := mistakes(ROOT, sys.argv[1]):
        sys.exit("\n".join(f"release: {text}" for text in wrong))
