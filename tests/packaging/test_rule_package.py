"""The package of rules that the page about custom rules shows, installed in an environment."""

from __future__ import annotations

import json
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from rule_runtime.testing import TrialBuilder
from stepwatch import LocalStore
from tests.docs.page_blocks import ROOT, blocks_of
from tests.packaging.test_distribution import run

BROKEN = """
[project.entry-points."stepwatch.rules"]
lost = "no_such_module"
[project.entry-points."stepwatch.packs"]
taken = "quiet_broken:TAKEN"
odd = "quiet_broken:ODD"
"""
LOST = "ModuleNotFoundError: No module named 'no_such_module'"
BROKEN_PACKS = """
from stepwatch import Pack
TAKEN, ODD = Pack("recommended", "Taken.", {}), 3
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run, and the environment in which the page's package is installed."""
    folder = tmp_path_factory.mktemp("quiet")
    for block in blocks_of("how-to/custom-rule.md"):
        if block.title:
            (folder / block.title).write_text(block.text)
    venv.create(folder / "venv", with_pip=False)
    (site,) = folder.glob("venv/lib/python*/site-packages")
    (site / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n{ROOT}\n")
    python = folder / "venv/bin/python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps")
    run(*pip, "--no-index", "--no-build-isolation", ".", cwd=folder)
    for name in ("quiet_gradient.py", "quiet_pack.py"):  # only the installed ones count
        (folder / name).unlink()
    trial = TrialBuilder(LocalStore(folder / "run"))
    trial.collections(gradients=("^gradient",))
    for step in range(10):
        trial.step(step, {"gradient/net.weight": [10.0**-step] * 4})
    trial.end()
    return folder


def stepwatch(folder: Path, *arguments: str, status: int = 0) -> str:
    code = (
        "import contextlib, sys; from rule_runtime.cli import main\n"
        "try: main()\n"
        f"except SystemExit as end: assert end.code == {status}, end.code"
    )
    return run(folder / "venv/bin/python", "-c", code, *arguments, cwd=folder)


def test_its_rules_and_its_pack_are_known_by_name(folder: Path) -> None:
    assert "QuietGradient " in stepwatch(folder, "rules")
    explained = json.loads(stepwatch(folder, "rules", "explain", "quiet_gradient", "--json"))
    assert (explained["packs"], explained["saves"]) == (["quiet"], ["gradients"])
    found = json.loads(stepwatch(folder, "evaluate", "run", "-p", "quiet", "--json", status=1))
    assert {each["RuleConfigurationName"]: each["RuleEvaluationStatus"] for each in found} == {
        "QuietGradient": "IssuesFound",
        "NonFinite": "NoIssuesFound",
    }
    configured = run(
        folder / "venv/bin/python",
        "-c",
        "import stepwatch; print([c.name for c in stepwatch.collections_for('quiet')])",
        cwd=folder,
    )
    assert "'gradients'" in configured


def test_entry_points_that_are_wrong_are_ignored_with_one_line_each(
    folder: Path, tmp_path: Path
) -> None:
    (site,) = folder.glob("venv/lib/python*/site-packages")
    (info,) = site.glob("quiet_rules-*.dist-info")
    assert "stepwatch.packs" in (info / "entry_points.txt").read_text()
    (site / "quiet_broken.py").write_text(BROKEN_PACKS)
    other = site / "broken-1.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (other / "entry_points.txt").write_text(
        BROKEN.replace('project.entry-points."', "").replace('"]', "]").replace('"', "")
    )
    code = "from rule_runtime.cli import main; import sys; sys.stderr = sys.stdout; main()"
    printed = run(folder / "venv/bin/python", "-c", code, "rules", cwd=tmp_path)
    warnings = [line for line in printed.splitlines() if line.startswith("stepwatch: ")]
    assert warnings == [
        f"stepwatch: ignored the entry point lost = no_such_module: {LOST}",
        "stepwatch: ignored the pack recommended of an entry point: the name is taken",
        "stepwatch: ignored the entry point 3: it is not a stepwatch.Pack",
    ]
    assert "Traceback" not in printed
    assert "other packs: original, quiet" in printed
