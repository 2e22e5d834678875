"""Running what the pages show; what needs an account or the network is checked as far as it goes.

Every command has one way of being checked, and one that has none fails.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import botocore.session
import tomllib
import typer.main

from infra.config import StepwatchConfig
from rule_runtime.cli.app import app
from tests.docs.page_blocks import ROOT, Command

__all__ = ["check", "parse"]

REPOSITORY = "https://github.com/stepwatch/stepwatch"

_TIMEOUT_S = 120
_ELSEWHERE = re.compile(r"s3://|--stack|^(\.venv/bin/)?stepwatch (local|ui|status)\b")
_CPU_TORCH = ["torch", "--index-url", "https://download.pytorch.org/whl/cpu"]
_EXTRAS = r"(?:\[(?P<extras>[\w,]+)\])?"
_INSTALLED = re.compile(rf"(?:\.|(?P<name>\w+)(?=.* @)){_EXTRAS}(?: @ git\+{REPOSITORY})?")
_OF_A_CHECKOUT = ("tests/", "tools/")
_PACKAGES = {"benchmarks", "infra", "tests", "tools"}
_CDK_COMMANDS = {"bootstrap", "deploy", "diff", "destroy", "synth"}


def check(command: Command, folder: Path) -> str:
    """Run a command in a folder, or check it as far as that goes here; return what it printed.

    Args:
        command: The command.
        folder: Where earlier ones of the page ran.
    """
    words = shlex.split(command.words)
    words[0] = words[0].removeprefix(".venv/bin/")  # the tests' own
    assert words[0] in CHECKS, f"there is no way to check {command.line!r}: add one"
    return CHECKS[words[0]](command, words, folder) or ""


def _stepwatch(command: Command, words: list[str], folder: Path) -> str:
    if command.has_placeholder or _ELSEWHERE.search(command.line):
        parse(words[1:])
        return ""
    return _run(command, words, folder)


def parse(arguments: list[str]) -> None:
    """Parse a command line of `stepwatch`, and do not run it.

    Args:
        arguments: What follows the name of the command.
    """
    group = typer.main.get_command(app)
    parent = group.make_context("stepwatch", arguments, resilient_parsing=True)
    name, found, rest = group.resolve_command(parent, arguments)  # type: ignore[attr-defined]
    while hasattr(found, "resolve_command"):
        name, found, rest = found.resolve_command(parent, rest)
    found.make_context(name, rest, parent=parent)


def _python(command: Command, words: list[str], folder: Path) -> str:
    """Run a script of the page; of a command for a checkout check that what it names exists."""
    module = words[2].partition(".")[0] if words[1] == "-m" else ""
    named = [word for word in words[1:] if word.startswith(_OF_A_CHECKOUT)]
    if not named and module not in _PACKAGES:
        return _run(command, words, folder)
    if module in _PACKAGES:
        assert importlib.util.find_spec(words[2]) is not None, command.line
    for path in named:
        assert (ROOT / path).exists(), command.line
    return ""


def _run(command: Command, words: list[str], folder: Path) -> str:
    done = subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == command.status, f"{command.line}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def _pip(command: Command, words: list[str], folder: Path) -> None:
    """Check that what is installed is the CPU's torch, a checkout, or the repository."""
    del folder
    assert words[1] == "install", command.line
    if words[2:] == _CPU_TORCH:
        return
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (requirement,) = words[2:]
    match = _INSTALLED.fullmatch(requirement)
    assert match is not None, f"{command.line}: install from a checkout or {REPOSITORY}"
    assert match["name"] in (None, project["name"]), command.line
    known = project["optional-dependencies"].keys()
    assert set(filter(None, (match["extras"] or "").split(","))) <= known, command.line


def _git(command: Command, words: list[str], folder: Path) -> None:
    del folder
    assert words == ["git", "clone", REPOSITORY, "&&", "cd", "stepwatch"], command.line


def _make(command: Command, words: list[str], folder: Path) -> None:
    del folder
    makefile = (ROOT / "Makefile").read_text()
    for setting in words[2:]:
        name = setting.partition("=")[0]
        assert f"$({name})" in makefile, f"{command.line}: there is no {name}"
    assert re.search(rf"^{re.escape(words[1])}:.*##", makefile, re.MULTILINE), command.line


def _cdk(command: Command, words: list[str], folder: Path) -> None:
    """Check the command's version, and read the settings as synthesis reads them."""
    del folder
    packages = json.loads((ROOT / "tests/e2e/second_emulator/package.json").read_text())
    assert words[1] == f"aws-cdk@{packages['dependencies']['aws-cdk']}", command.line
    assert words[2] in _CDK_COMMANDS, command.line
    context = json.loads((ROOT / "cdk.json").read_text())["context"]
    for flag, setting in zip(words[3::2], words[4::2], strict=True):
        assert flag == "-c", command.line
        key, _, value = setting.partition("=")
        context[key] = value
    StepwatchConfig.from_context(context)


def _aws(command: Command, words: list[str], folder: Path) -> None:
    """Check that a service has the operation, and the operation these parameters."""
    service, operation, *options = words[1:]
    model = botocore.session.get_session().get_service_model(service.removesuffix("api"))  # s3api
    shape = model.operation_model(_camel(operation)).input_shape
    assert shape is not None, command.line
    given = {}
    for flag, value in zip(options[::2], options[1::2], strict=True):
        member = _camel(flag.removeprefix("--"))
        assert member in shape.members, f"{command.line}: there is no {flag}"
        given[member] = value
        if value.startswith("file://"):
            assert (folder / value.removeprefix("file://")).is_file(), command.line
    assert set(shape.required_members) <= given.keys(), command.line


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("-"))


CHECKS: Mapping[str, Callable[[Command, list[str], Path], str | None]] = {
    "aws": _aws,
    "git": _git,
    "make": _make,
    "npx": _cdk,
    "pip": _pip,
    "python": _python,
    "stepwatch": _stepwatch,
}
