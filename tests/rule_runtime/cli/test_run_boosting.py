"""`stepwatch run` with a training of boosted trees: metrics of each round, the rest more rarely."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from hook_layer.testing.written_trial import WrittenTrial
from rule_runtime.configuration.dense_start import DENSE_STEPS
from tests.rule_runtime.processes import completed

pytest.importorskip("xgboost")

SCRIPT = """
import numpy as np, xgboost
random = np.random.default_rng(0)
features = random.normal(size=(400, 5))
labels = random.normal(size=400)
trained = xgboost.QuantileDMatrix(features[:300], labels[:300])
evals = [
    (xgboost.DMatrix(features[:300].astype(np.float32), labels[:300]), "a"),
    (xgboost.DMatrix(features[300:], labels[300:]), "b"),
]
xgboost.train({"nthread": 1, "max_depth": 3}, trained, 40, evals=evals, verbose_eval=False)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run whose labels have nothing to do with the features."""
    folder = tmp_path_factory.mktemp("boosting")
    (folder / "train.py").write_text(SCRIPT)
    stepwatch = Path(sys.executable).parent / "stepwatch"
    options = ["--out-dir", "out", "--output", "json", "--output-file", "verdicts.json"]
    command = [str(stepwatch), "run", *options, "--", sys.executable, "train.py"]
    done = completed(command, cwd=folder)
    assert done.returncode == 1, done.stderr
    return folder


def test_metrics_are_saved_every_round(folder: Path) -> None:
    trial = WrittenTrial(str(folder / "out" / "run-1"))
    assert sorted(trial.indexes()) == list(range(40))
    for step in trial.indexes():
        assert {"a-rmse", "b-rmse"} <= trial.names(step)
        assert ("predictions" in trial.names(step)) == (step % 10 == 0 or step in DENSE_STEPS)


def test_few_rounds_are_enough_to_judge(folder: Path) -> None:
    reported = json.loads((folder / "verdicts.json").read_text())
    status = {each["RuleConfigurationName"]: each["RuleEvaluationStatus"] for each in reported}
    assert status["GeneralisationGap"] == "IssuesFound"
    for rule in ("LossDiverging", "LossSpike", "OscillatingLoss"):
        assert status[rule] == "NoIssuesFound"
