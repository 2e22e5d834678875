"""The README: short, and with links that work wherever it is shown.

`tests/docs/test_commands.py` runs what it shows.
"""

from __future__ import annotations

import re
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MAX_WORDS = 500
REPOSITORY = "https://github.com/stepwatch/stepwatch"


def test_it_is_short() -> None:
    assert len(README.split()) <= MAX_WORDS


def test_its_links_are_absolute_and_lead_to_files() -> None:
    links = re.findall(r"\]\(([^)]+)\)", README)
    assert len(links) > 5
    for link in links:
        path = re.fullmatch(rf"{REPOSITORY}/(?:blob|raw)/main/([\w./-]+)(?:#[\w-]+)?", link)
        assert path is not None, link
        assert (ROOT / path[1]).is_file(), link


def test_it_is_the_long_description_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["readme"] == "README.md"


def test_it_names_one_version_of_python_and_says_that_there_is_no_telemetry() -> None:
    assert len(set(re.findall(r"Python (3\.\d+)", README))) == 1
    assert "no telemetry" in README
