"""The names of `import stepwatch`: all there, all typed, and none costs anything before its use."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import json
import pydoc
import subprocess
import sys
from pathlib import Path

import pytest

import stepwatch
from hook_layer import frameworks
from hook_layer.install_hint import install_hint
from rule_runtime.configuration.applicability import RULES_OF_DATA

ROOT = Path(__file__).resolve().parents[2]
FRAMEWORKS = {
    each.extra: (each.distributions[0][0], each.hook.rpartition(".")[2])
    for each in frameworks.FRAMEWORKS
}
"""The package and the hook of each module."""
HOMES = {"torch": "pytorch"}
"""Modules of hooks that have another name than the framework."""
INTERNAL = {"watch_unchanged"}
"""Names of hooks' modules that are for Stepwatch itself."""
UNTYPED = {"Memory", "Outcome", "__version__"}
"""Names that are no classes, functions or modules."""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_every_name_is_there_and_listed() -> None:
    assert set(stepwatch.__all__) <= set(dir(stepwatch))
    for name in stepwatch.__all__:
        value = getattr(stepwatch, name)
        is_typed = inspect.isclass(value) or inspect.isfunction(value) or inspect.ismodule(value)
        assert is_typed or name in UNTYPED, name


def test_every_public_class_and_function_is_documented() -> None:
    for name in stepwatch.__all__:
        value = getattr(stepwatch, name)
        if inspect.isclass(value) or inspect.isfunction(value) or inspect.ismodule(value):
            assert pydoc.getdoc(value), name


def names_of_hook(framework: str) -> list[str]:
    """Return `__all__` of a hook's module, which needs the framework to be imported."""
    spec = importlib.util.find_spec(f"hook_layer.{HOMES.get(framework, framework)}")
    assert spec is not None
    assert spec.origin is not None
    for node in ast.parse(Path(spec.origin).read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [name for name in ast.literal_eval(node.value) if name not in INTERNAL]
    raise AssertionError(spec.origin)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_each_framework_has_a_module_with_the_names_of_its_hook(framework: str) -> None:
    module = getattr(stepwatch, framework)
    assert module is importlib.import_module(f"stepwatch.{framework}")
    assert FRAMEWORKS[framework][1] in module.__all__
    assert module.__all__ == names_of_hook(framework)
    assert set(module.__all__) <= set(dir(module))


@pytest.mark.parametrize("framework", ["torch", "xgboost"])
def test_the_names_are_those_of_the_hook(framework: str) -> None:
    module = getattr(stepwatch, framework)
    home = importlib.import_module(f"hook_layer.{HOMES.get(framework, framework)}")
    for name in module.__all__:
        if name != "Hook":  # which has other defaults, see test_default_hooks.py
            assert getattr(module, name) is getattr(home, name)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_framework_that_is_missing_is_named_with_its_extra(framework: str) -> None:
    package, hook = FRAMEWORKS[framework]
    hidden = [package, "pytorch_lightning"] if framework == "lightning" else [package]
    hiding = f"import sys; sys.modules.update(dict.fromkeys({hidden}))"
    done = run(f"{hiding}\nfrom stepwatch.{framework} import {hook}")
    assert done.returncode == 1
    assert "ImportError" in done.stderr
    assert install_hint(framework) in done.stderr


def test_the_import_needs_neither_numpy_nor_a_framework() -> None:
    code = f"""
import sys, json, stepwatch
for name in {list(FRAMEWORKS)}:
    dir(getattr(stepwatch, name))
print(json.dumps(list(sys.modules)))
"""
    done = run(code)
    assert done.returncode == 0, done.stderr
    imported = {name.partition(".")[0] for name in json.loads(done.stdout)}
    packages = {package for package, _ in FRAMEWORKS.values()}
    assert not imported & (packages | {"numpy", "boto3", "typer", "importlib.metadata"})


def test_a_misspelt_name_gets_the_nearest_one() -> None:
    with pytest.raises(AttributeError, match="'create_trail'; did you mean 'create_trial'"):
        stepwatch.create_trail  # type: ignore[attr-defined]  # noqa: B018


def test_the_command_is_a_module_too() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "stepwatch", "--version"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == f"stepwatch {stepwatch.__version__}\n"


def test_type_checkers_see_real_types(tmp_path: Path) -> None:
    """No public name is Any, a misspelt one is an error, and a rule of a user is checked."""
    names = [name for name in stepwatch.__all__ if name not in UNTYPED]
    lines = ["import stepwatch", *(f"reveal_type(stepwatch.{name})" for name in names)]
    lines += ["reveal_type(stepwatch.torch.Hook)", "stepwatch.create_trail"]
    file = tmp_path / "user.py"
    file.write_text("\n".join(lines) + "\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    revealed = [line for line in done.stdout.splitlines() if "Revealed type" in line]
    assert len(revealed) == len(names) + 1
    assert not [line for line in revealed if '"Any"' in line]
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert len(errors) == 1, errors
    assert "create_trail" in errors[0]


def test_configuration_has_the_names_of_its_package() -> None:
    home = importlib.import_module("rule_runtime.configuration")
    assert stepwatch.configuration.__all__ == home.__all__
    for name in home.__all__:
        assert getattr(stepwatch.configuration, name) is getattr(home, name)


def test_what_hooks_lack_is_known_to_rules() -> None:
    for each in frameworks.FRAMEWORKS:
        assert each.facts.lacks <= RULES_OF_DATA.keys(), each
