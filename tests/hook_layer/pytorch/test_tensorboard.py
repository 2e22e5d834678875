"""TensorBoard output of a training, read by TensorBoard."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import hook_layer.pytorch as smd
from hook_layer.format.paths import parse_index_key
from hook_layer.testing.written_trial import WrittenTrial

event_accumulator = pytest.importorskip(
    "tensorboard.backend.event_processing.event_accumulator", exc_type=ImportError
)


TENSORS = ["weights", "gradients", "biases"]
EVERYTHING = {"scalars": 0, "histograms": 0}
STATISTICS_ONLY = smd.ReductionConfig(save_raw_tensor=False)


def train(out_dir: Path, **options: Any) -> smd.Hook:
    """Train three steps, evaluate one and train a last one; return the closed hook."""
    torch.manual_seed(0)
    options = {"include_collections": TENSORS, **options}
    hook = smd.Hook(str(out_dir), save_config=smd.SaveConfig(save_interval=1), **options)
    net, criterion = torch.nn.Linear(3, 2), torch.nn.MSELoss()
    hook.register_module(net)
    hook.register_loss(criterion)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for mode in (smd.modes.TRAIN,) * 3 + (smd.modes.EVAL, smd.modes.TRAIN):
        hook.set_mode(mode)
        optimizer.zero_grad()
        loss = criterion(net(torch.ones(4, 3)), torch.zeros(4, 2))
        if mode is smd.modes.TRAIN:
            loss.backward()
            optimizer.step()
        hook.save_scalar("lr", 0.1)
    hook.close()
    report = hook.report()
    assert not report.errors, report
    assert not report.writer.export_errors, report
    return hook


def read(folder: Path) -> Any:
    return event_accumulator.EventAccumulator(str(folder), size_guidance=EVERYTHING).Reload()


def test_losses_and_scalars_are_numbers_and_tensors_histograms(tmp_path: Path) -> None:
    train(tmp_path / "run", export_tensorboard=True)
    trial = WrittenTrial(str(tmp_path / "run"))
    accumulator = read(tmp_path / "run" / "tensorboard" / "TRAIN")
    tags = accumulator.Tags()
    assert sorted(tags["scalars"]) == ["MSELoss_output_0", "scalar/lr"]
    assert sorted(tags["histograms"]) == [
        "biases/Linear_bias",
        "gradients/gradient/Linear_bias",
        "gradients/gradient/Linear_weight",
        "weights/Linear_weight",
    ]
    losses = {e.step: e.value for e in accumulator.Scalars("MSELoss_output_0")}
    assert losses == {
        step: pytest.approx(float(trial.records(step)["MSELoss_output_0"].value))
        for step in (0, 1, 2, 4)
    }
    for event in accumulator.Histograms("weights/Linear_weight"):
        record = trial.records(event.step)["Linear_weight"]
        histogram, value = event.histogram_value, record.value.astype("f8")
        assert event.wall_time == record.wall_time
        assert (histogram.min, histogram.max, histogram.num) == (value.min(), value.max(), 6)
        assert histogram.sum_squares == pytest.approx(np.square(value).sum())
    evaluation = read(tmp_path / "run" / "tensorboard" / "EVAL")
    assert [e.step for e in evaluation.Scalars("MSELoss_output_0")] == [3]
    assert sorted(evaluation.Tags()["histograms"]) == [
        "biases/Linear_bias",
        "weights/Linear_weight",
    ]


@pytest.mark.parametrize("reduction_config", [None, STATISTICS_ONLY])
def test_the_trial_is_the_same_with_tensorboard_and_without(
    tmp_path: Path, reduction_config: smd.ReductionConfig | None
) -> None:
    train(tmp_path / "off", reduction_config=reduction_config)
    train(
        tmp_path / "on", reduction_config=reduction_config, tensorboard_dir=str(tmp_path / "board")
    )
    tags = read(tmp_path / "board" / "TRAIN").Tags()
    assert len(tags["histograms"]) == 4
    files = {}
    for name in ("off", "on"):
        trial = WrittenTrial(str(tmp_path / name))
        files[name] = {key: _without_times(trial, key) for key in trial.store.list()}
    assert files["on"] == files["off"]


def _without_times(trial: WrittenTrial, key: str) -> Any:
    if key.startswith("events/"):
        return trial.store.size(key)
    if not key.startswith("index/"):
        return None if key in ("job.json", "training_job_end.ts") else trial.store.get(key)
    step = parse_index_key(key).step
    index, records = trial.indexes()[step], trial.records(step)
    assert index.statistics is not None
    values = {name: record.value.tolist() for name, record in records.items()}
    rows = dict(zip(index.statistics.tensors, index.statistics.values.tolist(), strict=True))
    return index.locations, index.shapes, str(rows), values


def test_a_collection_without_histograms_has_none(tmp_path: Path) -> None:
    hook = smd.Hook(
        str(tmp_path / "run"),
        export_tensorboard=True,
        save_config=smd.SaveConfig(save_interval=1),
        include_collections=["weights", "biases"],
    )
    hook.get_collection("weights").save_histogram = False
    net = torch.nn.Linear(3, 2)
    hook.register_module(net)
    net(torch.ones(1, 3))
    hook.close()
    tags = read(tmp_path / "run" / "tensorboard" / "GLOBAL").Tags()
    assert tags["histograms"] == ["biases/Linear_bias"]


def test_the_training_is_the_same_with_tensorboard_and_without(tmp_path: Path) -> None:
    weights = []
    for options in ({}, {"tensorboard_dir": str(tmp_path / "board")}):
        hook = train(tmp_path / str(len(weights)), **options)
        weights.append(WrittenTrial(hook.out_dir).records(4)["Linear_weight"].value)
    np.testing.assert_array_equal(*weights)


def test_bfloat16_has_histograms(tmp_path: Path) -> None:
    hook = smd.Hook(
        str(tmp_path / "run"),
        export_tensorboard=True,
        save_config=smd.SaveConfig(save_interval=1),
        reduction_config=STATISTICS_ONLY,
        include_collections=["weights"],
    )
    net = torch.nn.Linear(300, 100).bfloat16()
    hook.register_module(net)
    net(torch.ones(1, 300).bfloat16())
    hook.close()
    (event,) = read(tmp_path / "run" / "tensorboard" / "GLOBAL").Histograms("weights/Linear_weight")
    assert event.histogram_value.num == 30_000
    assert event.histogram_value.min == net.weight.min().item()


def test_without_tensorboard_output_nothing_is_planned_or_copied(tmp_path: Path) -> None:
    hook = smd.Hook(
        str(tmp_path / "run"),
        save_config=smd.SaveConfig(save_interval=1),
        reduction_config=STATISTICS_ONLY,
        include_collections=["weights"],
    )
    net = torch.nn.Linear(3, 2)
    hook.register_module(net)
    net(torch.ones(1, 3))
    assert hook.recorder.record is not None
    captured = hook.recorder.record.tensors["Linear_weight"]
    assert (captured.summaries, captured.shown, captured.snapshots) == (None, None, [])
    hook.close()
    assert not (tmp_path / "run" / "tensorboard").exists()


def test_nothing_of_tensorboard_is_imported(tmp_path: Path) -> None:
    script = (
        "import sys, hook_layer.pytorch as smd\n"
        f"hook = smd.Hook({str(tmp_path / 'run')!r}, export_tensorboard=True)\n"
        "hook.save_scalar('a', 1.0); hook.close()\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('tensorboard', 'tensorflow')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.strip() == "[]", done.stdout
    assert list((tmp_path / "run" / "tensorboard" / "GLOBAL").iterdir())
