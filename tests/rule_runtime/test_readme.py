"""`What lives where` in the README of the package names the modules that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "rule_runtime"
README = (PACKAGE / "README.md").read_text(encoding="utf-8")
SECTION = README.split("## What lives where\n")[1].split("\n## ")[0]
ROWS = re.findall(r"^\| `(\w+)/`[^|]*\| (.*) \|$", SECTION, re.MULTILINE)
ONE_FILE_A_KIND = {"rules", "plotting", "cli", "numerics"}
"""Folders whose files are told all together."""


def modules(folder: str) -> set[str]:
    found = {file.name for file in (PACKAGE / folder).glob("*.py")}
    return {name for name in found if not name.startswith("__")}


def told(folder: str) -> set[str]:
    texts = [text for name, text in ROWS if name == folder]
    return {name for text in texts for name in re.findall(r"`(\w+\.py)`", text)}


def test_every_folder_has_a_row() -> None:
    folders = {init.parent.name for init in PACKAGE.glob("*/__init__.py")}
    assert {name for name, _ in ROWS} == folders


@pytest.mark.parametrize("folder", sorted({name for name, _ in ROWS}))
def test_each_module_that_is_named_is_there_and_the_other_way_round(folder: str) -> None:
    assert told(folder) <= modules(folder)
    missing = set() if folder in ONE_FILE_A_KIND else modules(folder) - told(folder)
    assert not missing, f"say in rule_runtime/README.md what these of {folder}/ are for"
