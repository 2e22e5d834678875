"""`stepwatch run` in a workflow of GitHub Actions, and with targets that fail."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from rule_runtime.exporting.github import export_run
from rule_runtime.exporting.run_findings import Finding, RunFindings
from tests.rule_runtime.processes import completed

STEPWATCH = Path(sys.executable).parent / "stepwatch"
SCRIPT = """
import torch

torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=float("1e20"))
inputs, targets = torch.randn(8, 4), torch.randn(8, 1)
for _ in range(20):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(inputs), targets).backward()
    optimizer.step()
"""
LINE_OF_OPTIMIZER = 6


def watch(folder: Path, *options: str, **variables: str) -> CompletedProcess[str]:
    (folder / "work").mkdir()
    (folder / "work" / "train.py").write_text(SCRIPT)
    command: list[str | Path] = [STEPWATCH, "run", "--output", "json", "--out-dir", "out", *options]
    env = {**os.environ, **variables}
    return completed([*command, "--", "train.py"], cwd=folder / "work", env=env)


def test_github_shows_the_cause_at_the_line_to_change(tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    done = watch(
        tmp_path,
        GITHUB_ACTIONS="true",
        GITHUB_WORKSPACE=str(tmp_path),
        GITHUB_STEP_SUMMARY=str(summary),
    )
    assert done.returncode == 1, done.stderr
    (verdict, *_) = json.loads(done.stdout)
    (annotation,) = [line for line in done.stderr.splitlines() if line.startswith("::error")]
    found = re.fullmatch(
        r"::error file=work/train\.py,line=(\d+),title=Stepwatch%3A out::(.+)", annotation
    )
    assert found is not None, annotation
    assert int(found[1]) == LINE_OF_OPTIMIZER
    assert verdict["Diagnosis"]["Headline"] in found[2]
    assert verdict["Diagnosis"]["Change"] in found[2]
    text = summary.read_text()
    assert text.startswith("**out**: ")
    assert f"train.py:{LINE_OF_OPTIMIZER}" in text
    assert "| NonFinite |" in text


def test_a_target_that_fails_changes_no_verdict(tmp_path: Path) -> None:
    done = watch(tmp_path, "--export", "github", GITHUB_STEP_SUMMARY=str(tmp_path))
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)
    (failure,) = [line for line in done.stderr.splitlines() if "not exported" in line]
    assert failure.startswith("stepwatch: the findings are not exported to github: IsADirectoryE")


def test_a_missing_library_is_a_mistake_before_the_training(tmp_path: Path) -> None:
    done = watch(tmp_path, "--export", "wandb")
    assert done.returncode == 2
    assert re.search(r"--export wandb needs wandb: pip install '.*\[wandb\]'", done.stderr)
    assert not (tmp_path / "work" / "out").exists()


def test_names_from_files_add_no_annotation_and_no_markup(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    attack = "a,b:\n::error::c | <img> 100%"
    finding = Finding("NonFinite", 3, attack)
    export_run(RunFindings("out,1", "runs/out", attack, "Fix it.", findings=(finding,)))
    (line,) = capsys.readouterr().out.splitlines()
    assert line == (
        "::error title=Stepwatch%3A out%2C1::a,b: ::error::c | <img> 100%25. Change: Fix it."
    )
    assert "\\| \\<img\\>" in summary.read_text()
    assert len(summary.read_text().strip().splitlines()) == 7


def test_a_run_without_findings_has_no_annotation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    export_run(RunFindings("out", "runs/out"))
    assert capsys.readouterr().out == ""
    assert summary.read_text() == "**out**: no issue found\n\n"
