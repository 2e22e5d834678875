"""Files, and parts of files, that are written from the code: bringing them up to date."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

__all__ = ["bring_up_to_date", "replaced", "write_section"]


def write_section(
    arguments: Sequence[str] | None,
    page: Path,
    marks: tuple[str, str],
    content: Callable[[], str],
    *,
    name: str,
    command: str,
) -> int:
    """Write a section of a page, or check it with `--check`; return the exit status.

    Args:
        arguments: Those of the command; None for those of the process.
        page: The page.
        marks: The line before the section, and the one after it.
        content: Returns the section.
        name: Name of the page in messages.
        command: The command that writes it.
    """
    parser = argparse.ArgumentParser(prog=command, description=f"Write a section of {name}.")
    parser.add_argument("--check", action="store_true", help="write nothing, fail if stale")
    is_check = parser.parse_args(arguments).check
    wanted = replaced(page.read_text(encoding="utf-8"), marks, content(), name=name)
    return bring_up_to_date(page, wanted, name=name, command=command, is_check=is_check)


def replaced(text: str, marks: tuple[str, str], content: str, *, name: str) -> str:
    """Return a text with new content between two marks.

    Args:
        text: The text.
        marks: The line before the content, and the one after it.
        content: The new content.
        name: Name of the text in messages.

    Raises:
        ValueError: The marks are missing.
    """
    begin, end = marks
    if begin not in text or end not in text:
        raise ValueError(f"{name} lacks the lines {begin} and {end}")
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{content}\n{end}{after}"


def bring_up_to_date(file: Path, wanted: str, *, name: str, command: str, is_check: bool) -> int:
    """Write a file if its text differs, and return the exit status.

    Args:
        file: The file.
        wanted: Its text.
        name: Name of the file in messages.
        command: The command that writes it.
        is_check: True to write nothing, and to print that the file is stale.
    """
    if file.exists() and file.read_text(encoding="utf-8") == wanted:
        return 0
    if is_check:
        print(f"{name} is stale: run {command}", file=sys.stderr)
        return 1
    file.write_text(wanted, encoding="utf-8")
    return 0
