"""The threat model names tests that exist, and no data becomes code."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
THREAT_MODEL = ROOT / "docs" / "explanation" / "security.md"
PACKAGES = ("hook_layer", "rule_runtime", "stepwatch", "lambdas", "infra")
TEST = re.compile(r"`([\w/]+\.py(?:::\w+)+)`")
ROW = re.compile(r"^\|(.+)\|$")
SHOWN_BY = "shown by"

DANGEROUS_MODULES = frozenset({"marshal", "shelve", "dill", "cloudpickle", "joblib"})
UNPICKLES = frozenset({"load", "loads", "Unpickler"})
DANGEROUS_CALLS = frozenset({"eval", "exec", "compile", "__import__"})
RUN_CODE_OF_THE_USER = {
    "hook_layer/autopatch/command.py",  # the script that its command line names
    "rule_runtime/custom_rules/loader.py",  # a file that its caller allows, pinned by its hash
}
"""Files that may execute code: none of it comes with a trial."""


def threats() -> list[tuple[int, list[str]]]:
    """Return the rows of the tables whose last column names tests: line and cells of each."""
    found: list[tuple[int, list[str]]] = []
    is_threat_table = False
    for number, line in enumerate(THREAT_MODEL.read_text(encoding="utf-8").splitlines(), start=1):
        match = ROW.match(line)
        if match is None:
            is_threat_table = False
            continue
        cells = [cell.strip() for cell in match[1].split(" | ")]
        if cells[-1] == SHOWN_BY:
            is_threat_table = True
        elif is_threat_table and set(line) - set("|-: "):
            found.append((number, cells))
    return found


@cache
def names_of_tests(path: str) -> frozenset[str]:
    """Return the tests of a file as pytest names them, without parameters."""
    tree = ast.parse((ROOT / path).read_text())
    names = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names |= {f"{node.name}::{f.name}" for f in node.body if isinstance(f, ast.FunctionDef)}
    return frozenset(name for name in names if name.rpartition("::")[2].startswith("test_"))


def test_there_are_threats() -> None:
    assert len(threats()) > 30


@pytest.mark.parametrize(("line", "cells"), threats())
def test_every_threat_names_tests_that_exist(line: int, cells: list[str]) -> None:
    threat, stopped_by, shown_by = cells
    assert threat
    assert stopped_by
    named = TEST.findall(shown_by)
    assert named, f"line {line} of {THREAT_MODEL.name} names no test"
    assert shown_by == ", ".join(f"`{test}`" for test in named)
    for test in named:
        path, _, name = test.partition("::")
        assert (ROOT / path).is_file(), f"line {line} of {THREAT_MODEL.name}: there is no {path}"
        assert name in names_of_tests(path), (
            f"line {line} of {THREAT_MODEL.name}: there is no {test}"
        )


def test_a_test_that_does_not_exist_would_be_found() -> None:
    path = "tests/test_security_threats.py"
    assert "test_there_are_threats" in names_of_tests(path)
    assert "test_there_are_no_threats" not in names_of_tests(path)
    assert "threats" not in names_of_tests(path), "a function that is no test"


def test_nothing_turns_data_into_code() -> None:
    found = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            if name not in RUN_CODE_OF_THE_USER:
                found += [f"{name}:{what}" for what in dangers(ast.parse(path.read_text()))]
    assert found == []


def test_what_turns_data_into_code_would_be_found() -> None:
    code = (
        "pickle.loads(b'')\nfrom marshal import loads\neval('1')\nnp.load(f, allow_pickle=True)\n"
        "yaml.load(f)\ntorch.load(f)\nfrom pickle import loads\nimport shelve\n"
        "import pickle\nre.compile('x')\njson.loads('1')\npickle.dumps(1)\n"
    )
    assert [what.partition(" ")[0] for what in dangers(ast.parse(code))] == list("12345678")


def dangers(tree: ast.AST) -> list[str]:
    """Return what may run code out of data, each with its line."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = {alias.name.partition(".")[0] for alias in node.names}
            found += [(node.lineno, name) for name in sorted(names & DANGEROUS_MODULES)]
        elif isinstance(node, ast.ImportFrom):
            names = {alias.name for alias in node.names}
            is_unpickling = node.module == "pickle" and names & UNPICKLES
            if is_unpickling or node.module in DANGEROUS_MODULES:
                found.append((node.lineno, node.module or ""))
        elif isinstance(node, ast.Attribute) and _unpickles(node):
            found.append((node.lineno, "pickle"))
        elif isinstance(node, ast.Call) and (what := _danger_of_call(node)):
            found.append((node.lineno, what))
    return [f"{line} {what}" for line, what in sorted(found)]


def _unpickles(node: ast.Attribute) -> bool:
    module = node.value.id if isinstance(node.value, ast.Name) else ""
    return module == "pickle" and node.attr in UNPICKLES


def _danger_of_call(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Name):
        return function.id if function.id in DANGEROUS_CALLS else ""
    if not isinstance(function, ast.Attribute):
        return ""
    module = function.value.id if isinstance(function.value, ast.Name) else ""
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    pickles = keywords.get("allow_pickle")
    if isinstance(pickles, ast.Constant) and pickles.value is True:
        return "allow_pickle"
    if (module, function.attr) == ("torch", "load") and "weights_only" not in keywords:
        return "torch.load"
    return "yaml.load" if (module, function.attr) == ("yaml", "load") else ""
