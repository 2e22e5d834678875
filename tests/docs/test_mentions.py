"""What the pages mention in passing exists: modules, names, settings, variables, methods."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from infra.config import READERS
from infra.stacks.stepwatch_stack import COMPONENT_TAG
from rule_runtime.engine.outcome import RuleStatus
from rule_runtime.jobs import DebugJob, PreparedJob
from tests.docs.page_blocks import DOCS, ROOT, pages

CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
OTHER_DOTTED_NAMES = r"stepwatch\.(?:json|packs|rules|debugger)\b"
"""A file, groups of entry points, and a source of events."""
OURS = re.compile(
    rf"\b(?!{OTHER_DOTTED_NAMES})(?:hook_layer|rule_runtime|stepwatch|lambdas|infra)(?:\.\w+)+"
)
IMPORTED = re.compile(r"from ((?:hook_layer|rule_runtime|stepwatch)[\w.]*) import ([\w, *]+)")
TEST = re.compile(r"(tests/[\w/]+\.py)::(\w+)")
IDENTIFIER = re.compile(r"::: ([\w.]+)")
VARIABLE = re.compile(
    r"\b(?:STEPWATCH|SMDEBUG|SMPROFILER|SAGEMAKER|USE|TRAINING|AWS|TENSORBOARD|CHECKPOINT)_[A-Z_]+"
)
WITHOUT_EFFECT = {
    "SMDEBUG_LOG_CONTEXT",
    "SMDEBUG_LOG_ALL_TO_STDOUT",
    "SMDEBUG_KERAS_CALLABLE_CACHE_TYPE",
    "SAGEMAKER_METRICS_DIRECTORY",
    "SMPROFILER_CONFIG_PATH",
}


@cache
def text_of(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


@cache
def mentions() -> tuple[tuple[str, str], ...]:
    """Return each piece of code in the text of a page, outside of blocks, with its page."""
    found = []
    for page in pages():
        prose = re.sub(r"^```.*?^```$", "", text_of(page), flags=re.DOTALL | re.MULTILINE)
        found += [(page, code) for code in CODE.findall(prose)]
    return tuple(found)


@cache
def names_in(module: str) -> frozenset[str] | None:
    """Return what a module defines or imports at its top; None if there is no such module."""
    path = ROOT.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if not file.is_file():
        return None
    names = {each.stem for each in path.glob("*.py")} | {each.name for each in path.glob("*/")}
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.ImportFrom, ast.Import)):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return frozenset(names)


def exists(name: str) -> bool:
    if names_in(name) is not None:
        return True
    module, _, attribute = name.rpartition(".")
    return attribute in (names_in(module) or ())


def test_the_modules_and_names() -> None:
    named = {(page, name) for page, code in mentions() for name in OURS.findall(code)}
    named |= {(page, name) for page in pages() for name in IDENTIFIER.findall(text_of(page))}
    assert len(named) > 50
    for page, name in named:
        assert exists(name), f"{page}: {name}"


def test_the_imports() -> None:
    lines = [(page, found) for page, code in mentions() for found in IMPORTED.findall(code)]
    assert len(lines) > 4
    for page, (module, names) in lines:
        for name in names.split(", "):
            if name == "*":
                assert names_in(module) is not None, f"{page}: {module}"
                continue
            assert exists(f"{module}.{name}"), f"{page}: from {module} import {name}"


def test_the_tests() -> None:
    named = [(page, found) for page, code in mentions() for found in TEST.findall(code)]
    assert len(named) > 10
    for page, (file, name) in named:
        module = file.removesuffix(".py").replace("/", ".")
        assert exists(f"{module}.{name}"), f"{page}: {file}::{name}"


def test_the_files_of_the_architecture() -> None:
    hook_layer = ROOT / "hook_layer"
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z_/]+(?:\.py|/))`", text))
    assert len(named) > 30
    assert not {f for f in named if not ((ROOT / f).exists() or (hook_layer / f).exists())}


def test_a_name_that_does_not_exist_would_be_found() -> None:
    assert exists("hook_layer.pytorch.Hook")
    assert not exists("hook_layer.pytorch.Hok")
    assert not exists("hook_layer.pytroch")


def test_no_page_installs_the_package_from_an_index() -> None:
    texts = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(DOCS / page for page in pages())]
    for path in texts:
        found = re.findall(r"stepwatch\[[\w,]+\](?! @ git\+)", path.read_text(encoding="utf-8"))
        assert not found, f"{path.name}: {found[0]} is on no index: install a checkout instead"


def test_the_settings() -> None:
    named = {
        found for _, code in mentions() for found in re.findall(r"stepwatch:(\w+)(?![\w-])", code)
    }
    assert named <= READERS.keys() | {COMPONENT_TAG.removeprefix("stepwatch:")}


@pytest.mark.parametrize(
    ("owner", "prefix"), [(PreparedJob, "prepared"), (DebugJob, "job")], ids=["prepared", "job"]
)
def test_the_methods_of_jobs(owner: type, prefix: str) -> None:
    named = {name for _, code in mentions() for name in re.findall(rf"\b{prefix}\.(\w+)", code)}
    assert named
    assert named - {"json"} <= {*dir(owner), *owner.__annotations__}


def test_the_environment_variables() -> None:
    sources = "\n".join(
        path.read_text(encoding="utf-8")
        for package in ("hook_layer", "rule_runtime")
        for path in (ROOT / package).rglob("*.py")
    )
    for page, code in mentions():
        for variable in VARIABLE.findall(code):
            is_read = f'"{variable}"' in sources or f"'{variable}'" in sources
            assert is_read != (variable in WITHOUT_EFFECT), f"{page}: {variable}"


def test_the_statuses() -> None:
    _, _, section = text_of("explanation/how-it-works.md").partition("\n## Statuses\n")
    rows = [row for row in section.partition("\n## ")[0].splitlines() if row.startswith("| `")]
    named = [name for row in rows for name in CODE.findall(row.split("|")[1])]
    assert sorted(named) == sorted(status.value for status in RuleStatus)
