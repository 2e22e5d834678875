"""Healthy scripts of tutorials: one of them is run and judged as its user would do it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.tutorials.page import as_page, as_text
from benchmarks.tutorials.runs import Outcome, Script, outcome_of, scripts


def test_each_script_says_what_it_trains_and_knows_nothing_of_what_watches_it() -> None:
    found = scripts()
    assert len(found) > 50
    for script in found:
        assert script.about
        assert "stepwatch" not in script.path.read_text().lower()


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    (script,) = (each for each in scripts() if each.name == "xgb_train_early_stopping")
    return outcome_of(script, seed=1, save_interval=10)


def test_a_healthy_script_is_judged_and_not_accused(outcome: Outcome) -> None:
    assert outcome.failure == ""
    assert outcome.findings == {}
    assert 5 < outcome.judged < outcome.rules


def test_the_page_counts_runs_and_names_findings(outcome: Outcome) -> None:
    accused = Outcome(outcome.script, 1, {"LossSpike": "it rose"}, 5, 26, 1.0)
    page = as_page([outcome, accused], save_interval=10)
    assert "**1 of 2 runs have a finding**" in page
    assert f"| 5 of {outcome.rules} | LossSpike (seed 1) |" in page
    assert "    LossSpike: it rose" in as_text(accused)


def test_a_script_that_fails_is_told(tmp_path: Path) -> None:
    path = tmp_path / "torch_broken.py"
    path.write_text('"""Nothing."""\nimport sys\nsys.exit("no data")\n')
    failed = outcome_of(Script(path), seed=0, save_interval=10)
    assert "no data" in failed.failure
    assert "FAILED" in as_text(failed)
