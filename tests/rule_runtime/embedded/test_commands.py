"""How a user's command is run, and what its run is called."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rule_runtime.embedded.commands import checked_command, script_name


@pytest.mark.parametrize(
    "command",
    [
        [sys.executable, "train.py", "--x"],
        [sys.executable, "-m", "my.train"],
        [sys.executable, "-um", "my.train"],
        [sys.executable, "-W", "ignore", "train.py"],
        [sys.executable, "folder"],
        [sys.executable],
        [sys.executable, "-c", "print(1)"],
        [sys.executable, "-uc", "print(1)"],
        [sys.executable, "-m"],
        [sys.executable, "-", "t.py"],
        ["bash", "train.sh"],
        ["env", "A=b", "nosuch.py"],
    ],
)
def test_a_command_is_run_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    (tmp_path / "folder").mkdir()
    assert checked_command(command) == command


def test_a_script_alone_is_run_by_this_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    assert checked_command(["train.py", "-m"]) == [sys.executable, "train.py", "-m"]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["nosuchcommand", "train.py"], "nosuchcommand: there is no such command"),
        ([sys.executable, "nosuch.py"], "nosuch.py: the script does not exist"),
        (["nosuch.py"], "nosuch.py: the script does not exist"),
    ],
)
def test_what_is_not_there_is_reported(command: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        checked_command(command)


def test_a_python_without_this_package_is_named(tmp_path: Path) -> None:
    lacking = tmp_path / "python"
    lacking.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    lacking.chmod(0o755)
    with pytest.raises(ValueError, match="has no stepwatch installed"):
        checked_command([str(lacking), __file__])


@pytest.mark.parametrize("switch", ["-I", "-E", "-S"])
def test_a_switch_by_which_nothing_is_watched_is_named(
    caplog: pytest.LogCaptureFixture, switch: str
) -> None:
    command = [sys.executable, f"-u{switch[1:]}W", "error", __file__]
    assert checked_command(command) == command
    assert f"not watched: with {switch} Python does not read PYTHONPATH" in caplog.text


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python a/train.py --x", "train"),
        ("python -u -m pkg.train --config other.py", "train"),
        ("python -m pkg.__main__", "pkg"),
        ("mine/fit.py -m", "fit"),
        ("python", "script"),
        ("python -c print(1)", "script"),
        ("python -m rule_runtime.smdebug_alias a/script.py --x", "script"),
        ("python -m rule_runtime.smdebug_alias --replace -m pkg.fit", "fit"),
        ("python -m torch.distributed.run --nproc-per-node 2 train.py", "train"),
        ("torchrun --nproc-per-node 2 train.py --data b.py", "train"),
        ("torchrun -m pkg.train", "train"),
        ("accelerate launch a/train.py", "train"),
        ("uv run python train.py", "train"),
        ("bash ./train.sh", "train"),
        ("make train", "make"),
        ("./run_all", "run_all"),
    ],
)
def test_a_run_is_named_by_its_script_behind_whichever_launcher(command: str, name: str) -> None:
    assert script_name(command.split()) == name
