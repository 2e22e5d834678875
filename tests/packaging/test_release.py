"""A release needs one version and one date in all files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import tomllib

from tools import check_release

ROOT = Path(__file__).resolve().parents[2]
FILES = ("pyproject.toml", "CITATION.cff", "CHANGELOG.md")
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


@pytest.fixture
def released(tmp_path: Path) -> Path:
    """A checkout that is ready to tag."""
    for name in FILES:
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## {VERSION} (2026-12-01)\n")
    (tmp_path / "CITATION.cff").write_text(f"version: {VERSION}\ndate-released: 2026-12-01\n")
    return tmp_path


def test_the_versions_of_this_checkout_agree() -> None:
    assert f"\nversion: {VERSION}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {VERSION} (" in (ROOT / "CHANGELOG.md").read_text()


def test_a_release_without_mistakes(released: Path) -> None:
    assert check_release.mistakes(released, f"v{VERSION}") == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("CHANGELOG.md (2026-12-01)", "(unreleased)", f"change it to '## {VERSION} (2026-12-01)'"),
        ("CITATION.cff date-released: 2026-12-01", "", "set it to the date of release"),
        (
            f"CITATION.cff version: {VERSION}",
            "version: 0.0.9",
            f"version 0.0.9; set it to {VERSION}",
        ),
    ],
)
def test_a_mistake_names_the_file_and_the_change(
    released: Path, old: str, new: str, expected: str
) -> None:
    file, _, text = old.partition(" ")
    before = (released / file).read_text()
    assert text in before
    (released / file).write_text(before.replace(text, new))
    found = check_release.mistakes(released, f"v{VERSION}")
    assert any(mistake.startswith(file) and expected in mistake for mistake in found)


def test_a_tag_of_another_version(released: Path) -> None:
    (mistake,) = check_release.mistakes(released, "v9.9.9")
    assert mistake == f"the tag is v9.9.9; pyproject.toml has the version {VERSION}"


def test_the_workflow_checks_the_tag_first() -> None:
    workflow = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    assert workflow.index("tools/check_release.py") < workflow.index("make dist")
