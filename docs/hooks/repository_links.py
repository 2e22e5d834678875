"""Rewrites links between texts of the repository to the pages of the site."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from pathlib import Path

from inclusions import IncludeError, Inclusions
from readme_sections import lines_with_code

__all__ = ["Linker"]

_LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")
_CODE = re.compile(r"(`+[^`]+`+)")
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_SITE = "docs/"


class Linker:
    """Rewrites links that lead to files of the repository.

    Args:
        root: The repository.
        repository: Its address, for files that are on no page.
        inclusions: The page of each text.
    """

    def __init__(self, root: Path, repository: str, inclusions: Inclusions) -> None:
        self._root = root
        self._repository = repository.rstrip("/")
        self._inclusions = inclusions

    def rewritten(self, text: str, *, file: str, page: str) -> str:
        """Return a text with its links rewritten to pages, or to the repository's address.

        Args:
            text: Markdown.
            file: The file of the repository that it is from.
            page: The page that it stands on, below `docs/`.

        Raises:
            IncludeError: The target of a link does not exist.
        """

        def rewrite(match: re.Match[str]) -> str:
            return f"]({self._target(match['target'], file, page)})"

        return "\n".join(
            line if is_code else _outside_code(line, lambda part: _LINK.sub(rewrite, part))
            for line, is_code in lines_with_code(text)
        )

    def _target(self, target: str, file: str, page: str) -> str:
        target = self._local(target, file)
        if _ELSEWHERE.match(target):
            return target
        path, _, anchor = target.partition("#")
        wanted = posixpath.normpath(posixpath.join(posixpath.dirname(file), path)) if path else file
        if wanted in self._inclusions.files:
            place, anchor = self._inclusions.place_of(wanted, anchor)
            return _relative(place, anchor, page)
        if wanted.startswith(_SITE) and file.startswith(_SITE):
            return target  # MkDocs checks links between pages
        if wanted.startswith(_SITE):
            return _relative(wanted.removeprefix(_SITE), anchor, page)
        return self._in_repository(wanted, anchor, file)

    def _local(self, target: str, file: str) -> str:
        """Return the address of a file of the repository as a path relative to `file`."""
        for kind in ("blob", "tree", "raw"):
            prefix = f"{self._repository}/{kind}/main/"
            if target.startswith(prefix):
                return posixpath.relpath(
                    target.removeprefix(prefix), posixpath.dirname(file) or "."
                )
        return target

    def _in_repository(self, path: str, anchor: str, file: str) -> str:
        place = self._root / path
        if path.startswith("..") or not place.exists():
            raise IncludeError(f"{file} has a link to {path}, which does not exist")
        kind = "tree" if place.is_dir() else "blob"
        return f"{self._repository}/{kind}/main/{path}" + (f"#{anchor}" if anchor else "")


def _outside_code(line: str, change: Callable[[str], str]) -> str:
    parts = _CODE.split(line)
    return "".join(part if number % 2 else change(part) for number, part in enumerate(parts))


def _relative(target: str, anchor: str, page: str) -> str:
    if target == page and anchor:
        return f"#{anchor}"
    path = posixpath.relpath(target, posixpath.dirname(page) or ".")
    return path + (f"#{anchor}" if anchor else "")
