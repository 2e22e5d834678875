"""The page of tested versions says what the environments of the tests really have."""

from __future__ import annotations

import re
from collections.abc import Iterator

import tomllib
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

from tests.docs.page_blocks import DOCS, ROOT
from tools import setup_environment

PAGE = (DOCS / "reference" / "tested-versions.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| .*\(`(\w+)`\) \| ([\w.]+) \| ([\w.]+) \| ([\w.]+) \|$", re.MULTILINE)
WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
OF_CPUS = {"tensorflow-cpu": "tensorflow", "xgboost-cpu": "xgboost"}
TESTED_KINDS = ("dev", "frameworks", "mxnet", "oldest")
"""Environments of setup_environment.py in which tests of Stepwatch run."""


def pythons() -> set[str]:
    """Return the versions of Python with which every pinned package is tested."""
    steps = [step for job in WORKFLOW["jobs"].values() for step in job["steps"]]
    found = {step.get("with", {}).get("python-version") for step in steps}
    return {version for version in found if version and "matrix." not in version}


def requirements(kind: str) -> Iterator[Requirement]:
    """Yield the pinned requirements of an environment."""
    for argument in setup_environment.ENVIRONMENTS[kind][1]:
        if argument.endswith(".txt"):
            lines = (ROOT / argument).read_text(encoding="utf-8").splitlines()
            texts = [line.rstrip("\\ ") for line in lines if re.match(r"[\w.-]+==", line)]
        else:
            texts = [argument] if "==" in argument else []
        yield from map(Requirement, texts)


def pinned_versions() -> dict[str, set[Version]]:
    """Return the tested versions of each package."""
    (python,) = pythons()
    found = {"python": {Version(python), Version(setup_environment.OLDEST_PYTHON)}}
    for kind in TESTED_KINDS:
        used = setup_environment.OLDEST_PYTHON if kind == "oldest" else python
        environment = {"python_version": used, "python_full_version": f"{used}.0"}
        for requirement in requirements(kind):
            if requirement.marker is None or requirement.marker.evaluate(environment):
                (pin,) = requirement.specifier
                name = OF_CPUS.get(requirement.name, requirement.name)
                found.setdefault(name, set()).add(Version(pin.version))
    return found


def allowed() -> dict[str, str]:
    """Return the oldest version of each package that can be installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [text for group in project["optional-dependencies"].values() for text in group]
    found = {"python": project["requires-python"].removeprefix(">=")}
    for requirement in map(Requirement, [*project["dependencies"], *extras]):
        pins = [pin.version for pin in requirement.specifier if pin.operator in {">=", "=="}]
        found.update(dict.fromkeys([requirement.name] * bool(pins), *pins))
    return found


def test_the_table_has_the_versions_of_the_environments() -> None:
    rows = ROW.findall(PAGE)
    assert {name for name, *_ in rows} >= {
        *("torch", "keras", "tensorflow", "transformers", "lightning", "xgboost", "python"),
    }
    versions, oldest = pinned_versions(), allowed()
    assert rows == [
        (name, oldest.get(name, "any"), str(min(versions[name])), str(max(versions[name])))
        for name, *_ in rows
    ]


def test_the_operating_systems_are_those_of_the_workflow() -> None:
    assert {job["runs-on"] for job in WORKFLOW["jobs"].values()} == {"ubuntu-latest"}
    assert "| Linux | yes, on GitHub's `ubuntu-latest` |" in PAGE


def test_the_matrix_has_each_python_of_the_classifiers() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    supported = [
        text.rpartition(" ")[2] for text in project["classifiers"] if "Python :: 3." in text
    ]
    assert WORKFLOW["jobs"]["python"]["strategy"]["matrix"] == {"python": supported}


def test_the_workflow_runs_targets_and_folders_that_exist() -> None:
    commands = [step["run"] for job in WORKFLOW["jobs"].values() for step in job["steps"][2:]]
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    made = {command.removeprefix("make ") for command in commands if command.startswith("make ")}
    assert made == {"docs", "lint", "test", "test-all"}
    assert made <= set(targets)
    folders = [word for command in commands for word in command.split() if "tests/" in word]
    assert folders
    assert all((ROOT / folder).is_dir() for folder in folders)


def test_what_make_needs_is_the_python_of_the_workflow() -> None:
    (python,) = pythons()
    assert f"`make` in a checkout needs Python {python} or newer" in PAGE
