"""The README of a package is short, and has a row for each of its folders."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("hook_layer", "infra", "lambdas", "rule_runtime")
MAX_WORDS = 800


def text_of(package: str) -> str:
    return (ROOT / package / "README.md").read_text(encoding="utf-8")


def rows(package: str) -> dict[str, list[str]]:
    """Return what it says of each folder: what it holds, and how to change it."""
    _, _, section = text_of(package).partition("\n## What lives where\n")
    found = re.findall(r"^\| `(\w+)/` \| (.+) \| (.+) \|$", section, re.MULTILINE)
    return {folder: [holds, change] for folder, holds, change in found}


@pytest.mark.parametrize("package", PACKAGES)
def test_it_is_short(package: str) -> None:
    assert len(text_of(package).split()) <= MAX_WORDS


@pytest.mark.parametrize("package", PACKAGES)
def test_each_folder_has_a_row(package: str) -> None:
    tracked = {path.parent.name for path in (ROOT / package).glob("*/*.py")}
    assert rows(package).keys() == tracked


@pytest.mark.parametrize("package", PACKAGES)
def test_each_module_that_it_names_exists(package: str) -> None:
    folders = (*PACKAGES, "tests", "tools")
    names = {path.name for folder in folders for path in (ROOT / folder).rglob("*.py")}
    named = set(re.findall(r"`(?:\w+/)*(\w+\.py)`", text_of(package)))
    assert named
    assert named <= names
