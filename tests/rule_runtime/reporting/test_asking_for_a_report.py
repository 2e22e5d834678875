"""A report that is asked for as the original's rules are, or of the trial."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rule_runtime.engine.registry import UnknownRuleError, create_rule
from rule_runtime.trial.trial import Trial
from tests.rule_runtime.outcomes import make_run


def test_asked_for_as_a_rule_it_is_said_what_it_is_and_how_it_is_made() -> None:
    with pytest.raises(UnknownRuleError) as raised:
        create_rule("CreateXgboostReport", {"base_trial": "s3://bucket/job"})
    reported = str(raised.value)
    assert "CreateXgboostReport is not a rule but a report" in reported
    assert "create_trial(path).create_xgboost_report(out_dir)" in reported


def test_a_trial_writes_its_report(tmp_path: Path) -> None:
    builder = make_run(
        {"validation-rmse": np.float32([0.5])}, collections={"metrics": ("^validation-",)}
    )
    paths = Trial(builder.store, name="boosted").create_xgboost_report(tmp_path)
    assert Path(paths.html).parent == tmp_path / "CreateXgboostReport"
    assert "boosted" in Path(paths.html).read_text()
    assert "metrics" in json.loads(Path(paths.json).read_text())["sections"]
