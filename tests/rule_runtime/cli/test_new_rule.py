"""`stepwatch rules new NAME`: a rule and its test that work as they are written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rule_runtime.cli.evaluation import parse_rule
from rule_runtime.engine.rule import Rule
from rule_runtime.testing.rule_contract import RuleContract
from tests.rule_runtime.cli.invoking import invoke, trial_in
from tests.rule_runtime.processes import completed

ROOT = Path(__file__).resolve().parents[3]
MAX_LINES = 30
"""Lines of the file: it is read at a glance."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    status, output = invoke("rules", "new", "weight_norm")
    assert status == 0, output
    return tmp_path


def test_it_says_what_to_do_next(tmp_path: Path) -> None:
    status, output = invoke("rules", "new", "WeightNorm", "--folder", tmp_path / "rules")
    assert status == 0
    file = tmp_path / "rules" / "weight_norm.py"
    assert f"{file}: the rule WeightNorm" in output
    assert f"pytest {file.with_name('test_weight_norm.py')}" in output
    assert f"stepwatch evaluate RUN --rule {file}:WeightNorm" in output
    assert f"stepwatch run --rule {file}:WeightNorm -- python train.py" in output


def test_the_rule_is_short_and_finds_a_norm_above_its_bound(folder: Path) -> None:
    assert len((folder / "weight_norm.py").read_text().splitlines()) <= MAX_LINES
    trial = trial_in(folder / "run")
    for step, largest in enumerate((3.0, 4.0, 1e3)):
        trial.step(step, {"a.weight": np.float64([1]), "b.weight": np.float64([largest])})
    trial.end()
    status, output = invoke("evaluate", "run", "--rule", "weight_norm.py:WeightNorm")
    assert status == 1
    assert "b.weight: norm 1e+03 > 100.0 (worker_0, TRAIN)" in output
    status, output = invoke("evaluate", "run", "--rule", "weight_norm")
    assert status == 2
    assert "no rule 'weight_norm', but weight_norm.py: name the rule in the file" in output
    named = "weight_norm.py:WeightNorm:bound=2000"
    assert invoke("evaluate", "run", "--rule", named)[0] == 0


def test_its_test_passes(folder: Path) -> None:
    done = completed(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_weight_norm.py"],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout


def test_type_checkers_accept_both_files(folder: Path) -> None:
    done = completed(
        [sys.executable, "-m", "mypy", "--strict", *map(str, folder.glob("*.py"))],
        cwd=ROOT,
        env={"MYPYPATH": str(folder)},
    )
    assert done.returncode == 0, done.stdout


class TestContractOfTheWrittenRule(RuleContract):
    """The written rule keeps the contract of all rules."""

    @pytest.fixture(autouse=True)
    def written(self, folder: Path) -> None:
        self.file = folder / "weight_norm.py"

    def make_rule(self) -> Rule:
        return parse_rule(f"{self.file}:WeightNorm:bound=10")[1]


@pytest.mark.parametrize(
    ("name", "reported"),
    [
        (
            "weight-norm 2",
            "'weight-norm 2' is not a valid Python module name, such as weight_norm; ",
        ),
        ("2nd", "is not a valid Python module name"),
        ("class", "is not a valid Python module name"),
        ("random", "random is the name of an installed module; try random_rule"),
        ("numpy", "numpy is the name of an installed module; try numpy_rule"),
        ("NonFinite", "NonFinite is a built-in rule; `stepwatch rules explain NonFinite`"),
        ("non_finite", "NonFinite is a built-in rule"),
    ],
)
def test_names_that_would_not_work_are_refused(tmp_path: Path, name: str, reported: str) -> None:
    status, output = invoke("rules", "new", name, "--folder", tmp_path)
    assert status == 2
    assert reported in output
    assert not list(tmp_path.iterdir())


def test_no_file_is_overwritten(folder: Path) -> None:
    (folder / "weight_norm.py").unlink()
    (folder / "test_weight_norm.py").write_text("mine")
    status, output = invoke("rules", "new", "weight_norm")
    assert status == 2
    assert "test_weight_norm.py exists already; choose another name, or delete it" in output
    assert not (folder / "weight_norm.py").exists()
    assert (folder / "test_weight_norm.py").read_text() == "mine"


def test_a_built_in_rule_needs_a_checkout(tmp_path: Path) -> None:
    status, output = invoke("rules", "new", "weight_norm", "--built-in", "--folder", tmp_path)
    assert status == 2
    assert f"{tmp_path} is not a checkout of Stepwatch" in output
    assert not list(tmp_path.iterdir())


def test_a_built_in_rule_has_a_test_that_passes_and_a_page(tmp_path: Path) -> None:
    """The checkout is a folder whose rules are a second place of the package's."""
    for part in ("rule_runtime/rules", "tests/rule_runtime/rules"):
        (tmp_path / part).mkdir(parents=True)
    status, output = invoke("rules", "new", "weight_norm", "--built-in", "--folder", tmp_path)
    assert status == 0, output
    assert "tools/rule_documentation.py" in output
    page = (tmp_path / "docs/rules/weight_norm.md").read_text()
    assert page.startswith("# WeightNorm\n")
    assert "../reference/rules.md#weightnorm" in page
    rules = tmp_path / "rule_runtime" / "rules"
    (tmp_path / "conftest.py").write_text(
        f"import rule_runtime.rules\nrule_runtime.rules.__path__.append({str(rules)!r})\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
