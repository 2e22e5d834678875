"""The wheel and the sdist: what is in them, what indexes say of them, and that they install."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from email.parser import Parser
from importlib.util import find_spec
from pathlib import Path

import pytest
import tomllib

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("hook_layer", "rule_runtime", "stepwatch")


def run(*command: object, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    missing = [tool for tool in ("build", "hatchling", "twine") if find_spec(tool) is None]
    assert not missing, "run `make setup`, which installs them"
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, *("-m", "build", "--no-isolation", "--outdir"), folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (found,) = dist.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a fresh environment in which the wheel is installed.

    What the wheel needs is found in the environment of the tests, which takes no time.
    """
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps")
    run(*pip, "--no-index", wheel, cwd=folder)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"


def test_an_index_accepts_both(dist: Path) -> None:
    files = sorted(dist.iterdir())
    assert [file.name.partition("-")[0] for file in files] == ["stepwatch", "stepwatch"]
    run(sys.executable, "-m", "twine", "check", "--strict", *files, cwd=dist)


def test_the_wheel_has_the_packages_their_types_and_the_licence(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    info = next(name.partition("/")[0] for name in names if ".dist-info/" in name)
    assert {name.partition("/")[0] for name in names} == {*PACKAGES, info}
    assert {f"{package}/py.typed" for package in PACKAGES} <= names
    assert f"{info}/licenses/LICENSE" in names
    assert f"{info}/entry_points.txt" in names


def test_the_sdist_has_what_the_wheel_is_built_from_and_no_more(dist: Path) -> None:
    (file,) = dist.glob("*.tar.gz")
    with tarfile.open(file) as archive:
        found = {name.split("/")[1] for name in archive.getnames()}
    texts = {"CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml", ".gitignore"}
    assert found == {*PACKAGES, *texts}


def test_the_metadata_are_those_of_the_project(wheel: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        metadata = Parser().parsestr(archive.read(name).decode())
    assert metadata["Metadata-Version"] == "2.4"
    assert metadata["License-Expression"] == project["license"]
    assert metadata["Requires-Python"] == project["requires-python"]
    assert metadata.get_payload() == (ROOT / "README.md").read_text()
    urls = dict(url.split(", ") for url in metadata.get_all("Project-URL", []))
    assert {"Homepage", "Documentation", "Source", "Issues", "Changelog"} <= urls.keys()
    extras = metadata.get_all("Provides-Extra", [])
    assert sorted(extras) == sorted(project["optional-dependencies"])


def test_a_fresh_environment_has_the_package_and_the_command(installed: Path) -> None:
    code = "import stepwatch; print(stepwatch.__version__, stepwatch.Rule.__name__)\n"
    code += "import hook_layer, rule_runtime\n"
    code += "print(stepwatch.__file__, hook_layer.__file__, rule_runtime.__file__, sep='\\n')"
    first, *files = run(installed / "python", "-c", code, cwd=installed, PYTHONPATH="").splitlines()
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert first == f"{version} Rule"
    assert all(Path(file).is_relative_to(installed.parent) for file in files), files
    reported = run(installed / "stepwatch", "--help", cwd=installed, PYTHONPATH="")
    assert "Watch every step of a training job" in reported
    shown = run(installed / "stepwatch", "--version", cwd=installed, PYTHONPATH="")
    assert shown == f"stepwatch {version}\n"


def test_the_fresh_environment_judges_a_run(installed: Path, tmp_path: Path) -> None:
    """Data files and modules that are imported late are in the wheel, too."""
    code = """
import numpy
from hook_layer.storage.local import LocalStore
from stepwatch.testing import TrialBuilder
trial = TrialBuilder(LocalStore("run"))
trial.step(0, {"gradient/a": numpy.array([numpy.nan])})
trial.end()
import stepwatch
print(stepwatch.evaluate("run", ["ExplodingTensor"])["ExplodingTensor"].status.value)
"""
    reported = run(installed / "python", "-c", code, cwd=tmp_path, PYTHONPATH="")
    assert reported == "IssuesFound\n"
