"""What the README shows works as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the README's scripts run, one after the other."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "examples").symlink_to(ROOT / "examples")
    return folder


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PATH": path},  # as in an environment that is active
    )


def test_the_scripts_run_one_after_the_other(folder: Path) -> None:
    scripts = blocks("python")
    assert len(scripts) == 2
    for script in scripts:
        done = run([sys.executable, "-c", script], folder)
        assert done.returncode == 0, done.stderr
    assert "CrossEntropyLoss_output_0" in done.stdout
    assert "VanishingGradient" in done.stdout


def test_the_commands_run(folder: Path) -> None:
    commands = [
        line.split("  #")[0].split()
        for block in blocks("sh")
        for line in block.splitlines()
        if line.startswith("stepwatch")
    ]
    assert len(commands) == 4
    for command in commands:
        done = run([str(Path(sys.executable).parent / command[0]), *command[1:]], folder)
        is_sick = "examples/unchanged_script/train_sick.py" in command
        assert done.returncode == (1 if is_sick else 0), done.stdout + done.stderr
        assert ("stop requested by" in done.stderr) is is_sick


def test_the_named_make_targets_and_folders_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for link in re.findall(r"\]\(([\w/.]+)\)", README):
        assert (ROOT / link).exists(), link
