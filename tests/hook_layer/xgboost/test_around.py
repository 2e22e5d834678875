"""TensorBoard, spot training, and the tutorial."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import xgboost

from hook_layer.testing.written_trial import WrittenTrial
from hook_layer.xgboost import Hook
from tests.hook_layer.xgboost.boosting import EVERY_ROUND, Script, make_hook, matrix, train
from tests.python_path import PYTHON_PATH

ROOT = Path(__file__).resolve().parents[3]


def test_tensorboard_shows_metrics_and_shares_as_scalars(
    trial: WrittenTrial, tmp_path: Path
) -> None:
    event_accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", exc_type=ImportError
    )
    data = matrix()
    hook = make_hook(
        trial,
        "average_shap",
        "predictions",
        "hyperparameters",
        train_data=data,
        validation_data=data,
        hyperparameters={"booster": "gbtree"},
        tensorboard_dir=str(tmp_path),
    )
    results: dict[str, Any] = {}
    train(hook, data=data, evals_result=results)
    accumulator = event_accumulator.EventAccumulator(str(tmp_path / "GLOBAL")).Reload()
    tags = accumulator.Tags()
    assert {"train-rmse", "average_shap/f0"} <= set(tags["scalars"])
    assert tags["histograms"] == ["predictions/predictions"]
    shown = [(event.step, event.value) for event in accumulator.Scalars("train-rmse")]
    assert shown == [(i, pytest.approx(v)) for i, v in enumerate(results["train"]["rmse"])]
    assert not hook.report().writer.export_errors


class Interrupted(Exception):  # noqa: N818 - no error
    """The machine is taken away."""


def test_an_interrupted_run_continues_at_its_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = tmp_path / "checkpoints"
    checkpoints.mkdir()
    config = tmp_path / "checkpointconfig.json"
    config.write_text(json.dumps({"LocalPath": str(checkpoints)}))
    monkeypatch.setenv("CHECKPOINT_CONFIG_FILE_PATH", str(config))
    trial = WrittenTrial(str(tmp_path / "trial"))
    data = matrix()
    whole = train(data=data, rounds=8)

    def interrupt(_: Any, epoch: int) -> None:
        if epoch == 5:
            raise Interrupted

    hook = Hook(trial.uri, save_config=EVERY_ROUND, include_collections=["trees"])
    saving = xgboost.callback.TrainingCheckPoint(checkpoints, interval=3)
    with pytest.raises(Interrupted):
        train(hook, saving, Script(before=interrupt), data=data, rounds=8)
    hook.close(end_of_training=False)
    assert sorted(trial.indexes()) == [0, 1, 2, 3, 4]
    first_run = trial.job().run_id

    # The last checkpoint is that of round 3: round 4 is trained once more.
    (checkpoint,) = checkpoints.glob("*.ubj")
    saved = xgboost.Booster(model_file=checkpoint)
    assert saved.num_boosted_rounds() == 4
    again = Hook(trial.uri, save_config=EVERY_ROUND, include_collections=["trees"])
    rest = 8 - saved.num_boosted_rounds()
    model = train(again, data=data, rounds=rest, xgb_model=checkpoint)
    assert model.get_dump() == whole.get_dump()
    assert again.training_run == 1
    assert trial.job().run_id == first_run
    assert sorted(trial.indexes()) == list(range(8))
    for step in range(8):
        assert set(trial.values(step)["trees/Tree"]) == {step}
    assert trial.end_marker() is not None


def test_the_example_of_the_tutorial_runs(tmp_path: Path) -> None:
    tutorial = (ROOT / "docs" / "tutorials" / "xgboost.md").read_text(encoding="utf-8")
    example, _ = re.findall(r"^```python\n(.*?)^```", tutorial, re.DOTALL | re.MULTILINE)
    done = subprocess.run(
        [sys.executable, "-c", example],
        cwd=tmp_path,
        env={"PYTHONPATH": PYTHON_PATH},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    trial = WrittenTrial(str(tmp_path / "runs" / "diabetes-1"))
    assert sorted(trial.indexes()) == [*range(50)]
    assert {"train-rmse", "predictions", "labels"} <= trial.names(40)
    assert "training_data/Label" in trial.names(0)
    assert trial.end_marker() is not None
