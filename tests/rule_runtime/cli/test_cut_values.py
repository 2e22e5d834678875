"""Commands say of which values only the first rows are stored."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hook_layer.testing.written_trial import WrittenTrial
from rule_runtime import create_trial
from tests.hook_layer.tiny_hook import make_hook
from tests.rule_runtime.cli.invoking import invoke

LOGITS = np.random.default_rng(0).normal(size=(512, 64)).astype("f4")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    hook = make_hook(WrittenTrial(str(folder)), max_step_bytes=16 << 10)
    for _ in range(3):
        hook.train({"w_logits": LOGITS, "w_labels": np.arange(512)})
    hook.close()
    return folder


def test_a_trial_reads_the_first_rows_and_the_whole_shape(run: Path) -> None:
    trial = create_trial(str(run))
    logits, labels = trial.tensor("w_logits"), trial.tensor("w_labels")
    rows = len(logits.value(2))
    np.testing.assert_array_equal(logits.value(2), LOGITS[:rows])
    np.testing.assert_array_equal(labels.value(2), np.arange(rows))
    assert logits.shape(2) == LOGITS.shape
    assert logits.reduction_value(2, "max") == LOGITS.max()


def test_status_and_report_say_what_was_cut(run: Path, tmp_path: Path) -> None:
    rows = len(create_trial(str(run)).tensor("w_logits").value(2))
    assert 0 < rows < 512
    reported = f"w_logits: {rows} of 512 rows at "
    _, output = invoke("status", run)
    assert f"{reported}1 step" in output
    file = tmp_path / "report.json"
    invoke("report", run, "--rule", "NonFinite", "--output-file", file)
    assert f"{reported}3 steps" in json.dumps(json.loads(file.read_text()))
