"""What `environment.json` says of a process."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hook_layer.run.environment import environment_file, environment_of_process, masked

SECRET = "s3cr3t"


@pytest.mark.parametrize(
    "spelling",
    [
        ["--password", SECRET],
        [f"--password={SECRET}"],
        ["-token", SECRET],
        [f"--api-key={SECRET}"],
        [f"API_KEY={SECRET}"],
        [f"++wandb.api_key={SECRET}"],
        [f"--hub_token:{SECRET}"],
        ["--client-secret", f"-{SECRET}"],
        ["--keys", "first", SECRET],
        [f'--config={{"lr": 1, "Password": "{SECRET}"}}'],
        [f"https://user:{SECRET}@host/path"],
        [f"https://{SECRET}@host/path"],
        [f"postgres://user:{SECRET}/{SECRET}@host/base"],
        ["bash", "-c", f"python train.py --hf-token {SECRET}"],
        [f"--api-key {SECRET}"],
        ["-c", f"import os; os.environ['HF_TOKEN'] = '{SECRET}'"],
    ],
)
def test_a_secret_is_masked(spelling: list[str]) -> None:
    shown = masked(["train.py", *spelling, "--lr", "0.1"])
    assert SECRET not in " ".join(shown)
    assert "***" in " ".join(shown)
    assert [shown[0], *shown[-2:]] == ["train.py", "--lr", "0.1"]


def test_other_arguments_are_kept() -> None:
    command = ["python", "monkey/train.py", "--lr", "0.1", "model.depth=3", "s3://keys/data", "-v"]
    assert masked(command) == command


def test_a_long_argument_is_cut_and_takes_no_time() -> None:
    (shown,) = masked([f"{'x' * 1_000_000} key={SECRET}"])
    assert len(shown) == 4096


def test_no_value_of_an_environment_variable_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", SECRET)
    assert SECRET not in environment_of_process(1).decode()


def test_imported_packages_have_their_versions() -> None:
    import numpy as np

    packages = json.loads(environment_of_process(4))["Packages"]
    assert packages["numpy"] == np.__version__
    assert packages["pytest"] == pytest.__version__
    assert "json" not in packages
    assert json.loads(environment_of_process(4))["WorldSize"] == 4


def test_the_commit_and_changes_of_tracked_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert json.loads(environment_file(["train"]))["Git"] is None  # a folder without a repository
    (tmp_path / "train.py").write_text("1")
    git("init", "-q")
    git("add", ".")
    git("-c", "user.name=me", "-c", "user.email=me@host", "commit", "-qm", "first")
    (tmp_path / "untracked.py").write_text("2")
    described = json.loads(environment_file(["train"]))["Git"]
    assert described == {"Commit": git("rev-parse", "HEAD"), "IsDirty": False}
    (tmp_path / "train.py").write_text("3")
    assert json.loads(environment_file(["train"]))["Git"]["IsDirty"] is True


def test_without_git_and_without_its_folder_the_rest_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    folder = tmp_path / "removed"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    described = json.loads(environment_file(["train"]))
    assert (described["Git"], described["WorkingDirectory"]) == (None, None)
    assert described["Python"] == ".".join(map(str, sys.version_info[:3]))


def git(*arguments: str) -> str:
    command = [shutil.which("git") or "git", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
