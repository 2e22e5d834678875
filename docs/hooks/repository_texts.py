"""Puts texts of the repository onto the site; MkDocs calls these functions.

The other modules of this folder do not depend on MkDocs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from inclusions import IncludeError
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page
from page_writer import PageWriter

__all__ = ["on_files", "on_page_markdown"]

_WRITER = "page_writer"


def on_files(files: Files, /, *, config: MkDocsConfig) -> None:
    """Assign texts to pages."""
    root = Path(config.config_file_path).parent
    pages = {
        file.src_uri: Path(file.abs_src_path or "").read_text(encoding="utf-8")
        for file in files.documentation_pages()
    }
    try:
        config.extra[_WRITER] = PageWriter(root, config.extra["repository"], pages)
    except IncludeError as error:
        raise PluginError(str(error)) from error


def on_page_markdown(markdown: str, /, *, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Return the page with its directives replaced."""
    writer: PageWriter = config.extra[_WRITER]
    try:
        return writer.written(markdown, page.file.src_uri)
    except IncludeError as error:
        raise PluginError(str(error)) from error
