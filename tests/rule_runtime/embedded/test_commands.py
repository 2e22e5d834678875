"""Which command is run in place of a user's."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rule_runtime.embedded.commands import hooked_command, script_name

CONFIG = Path("c.json")
HOOKED = ["-m", "hook_layer", "--config", "c.json"]


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ([sys.executable, "train.py", "--x"], [sys.executable, *HOOKED, "train.py", "--x"]),
        ([sys.executable, "-m", "my.train"], [sys.executable, *HOOKED, "-m", "my.train"]),
        ([sys.executable, "-u", "-O", "t.py"], [sys.executable, "-u", "-O", *HOOKED, "t.py"]),
        (
            [sys.executable, "-W", "ignore", "t.py"],
            [sys.executable, "-W", "ignore", *HOOKED, "t.py"],
        ),
        ([sys.executable, "-BX", "dev", "t.py"], [sys.executable, "-BX", "dev", *HOOKED, "t.py"]),
        ([sys.executable, "-Wignore", "t.py"], [sys.executable, "-Wignore", *HOOKED, "t.py"]),
        ([sys.executable, "-um", "my.train"], [sys.executable, "-u", *HOOKED, "-m", "my.train"]),
        ([sys.executable, "-mmy.train"], [sys.executable, *HOOKED, "-m", "my.train"]),
        (["train.py", "-m"], [sys.executable, *HOOKED, "train.py", "-m"]),
    ],
)
def test_the_hook_comes_between_python_and_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], expected: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for script in ("train.py", "t.py"):
        (tmp_path / script).write_text("")
    assert hooked_command(command, CONFIG) == expected


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["nosuchcommand", "train.py"], "nosuchcommand: there is no such command"),
        ([sys.executable, "nosuch.py"], "nosuch.py: there is no such script"),
        (["nosuch.py"], "nosuch.py: there is no such script"),
    ],
)
def test_what_is_not_there_is_told(command: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        hooked_command(command, CONFIG)


def test_a_python_without_this_package_is_named(tmp_path: Path) -> None:
    lacking = tmp_path / "python"
    lacking.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    lacking.chmod(0o755)
    with pytest.raises(ValueError, match="is a Python in which stepwatch is not installed"):
        hooked_command([str(lacking), __file__], CONFIG)


@pytest.mark.parametrize(
    "command",
    [
        ["bash", "train.sh"],
        ["env", "A=b", "nosuch.py"],
        [sys.executable],
        [sys.executable, "-c", "print(1)"],
        [sys.executable, "-uc", "print(1)"],
        [sys.executable, "-m"],
        [sys.executable, "-", "t.py"],
    ],
)
def test_what_names_no_script_of_python_stays_as_it_is(command: list[str]) -> None:
    assert hooked_command(command, CONFIG) == command


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
