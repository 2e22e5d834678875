"""The real TensorBoard shows what is exported."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hook_layer.capture.reductions import ReductionConfig
from hook_layer.configuration.collection_manager import CollectionManager, SummaryPlan
from hook_layer.configuration.collections import Collection
from hook_layer.configuration.hook_options import HookOptions
from hook_layer.configuration.hook_setup import HookSetup
from hook_layer.configuration.job import HookTargets
from hook_layer.delivery.tensorboard import TensorBoardExporter
from hook_layer.format.modes import ModeKeys
from hook_layer.storage.base import Store
from hook_layer.storage.local import LocalStore
from hook_layer.testing.written_trial import WrittenTrial
from tests.hook_layer.board import SCALAR, WEIGHTS, files, read, step, tensor
from tests.hook_layer.doubles import Switchable
from tests.hook_layer.fixed_workers import FixedWorkers
from tests.hook_layer.tiny_hook import EVERY_STEP, TinyHook

ONE_RANK = FixedWorkers(0, 1)

event_multiplexer = pytest.importorskip("tensorboard.backend.event_processing.event_multiplexer")


def test_scalars_and_histograms_with_steps_times_and_values(tmp_path: Path) -> None:
    exporter = TensorBoardExporter(LocalStore(tmp_path))
    values = np.random.default_rng(0).standard_normal((4, 5, 6)).astype("f4")
    for number in (0, 3, 500):
        tensors = {
            "loss": tensor(np.float32(0.5 + number), SCALAR),
            "scalar/lr": tensor(np.array([0.25]), SCALAR, wall_time=77.5),
            "w:0": tensor(values + number, WEIGHTS),
            "unseen": tensor(values, None),
        }
        exporter(step(number, tensors))
    accumulator = read(tmp_path / "TRAIN")
    tags = accumulator.Tags()
    assert (sorted(tags["scalars"]), tags["histograms"]) == (["loss", "scalar/lr"], ["weights/w_0"])
    assert tags["distributions"] == ["weights/w_0"]
    scalars = [(e.step, e.wall_time, e.value) for e in accumulator.Scalars("loss")]
    assert scalars == [(0, 1000.0, 0.5), (3, 1003.0, 3.5), (500, 1500.0, 500.5)]
    assert {e.wall_time for e in accumulator.Scalars("scalar/lr")} == {77.5}
    for event, number in zip(accumulator.Histograms("weights/w_0"), (0, 3, 500), strict=True):
        histogram, shifted = event.histogram_value, (values + number).astype("f8")
        assert (event.step, event.wall_time) == (number, 1000.0 + number)
        assert (histogram.min, histogram.max) == (shifted.min(), shifted.max())
        assert histogram.num == sum(histogram.bucket) == values.size
        assert histogram.sum == pytest.approx(shifted.sum())
        assert histogram.sum_squares == pytest.approx(np.square(shifted).sum())
    assert len(accumulator.CompressedHistograms("weights/w_0")) == 3


def test_files_are_laid_out_as_by_the_original(tmp_path: Path) -> None:
    exporter = TensorBoardExporter(LocalStore(tmp_path))
    exporter(step(7))
    exporter(step(8, mode=ModeKeys.EVAL))
    exporter(step(9))
    name = f"{os.getpid()}_{socket.gethostname()}.tfevents"
    assert files(tmp_path / "TRAIN") == [f"000000000007_{name}"]
    assert files(tmp_path / "EVAL") == [f"000000000008_{name}"]


def test_modes_and_workers_are_runs_of_their_own(tmp_path: Path) -> None:
    for worker in (None, "worker_1"):
        exporter = TensorBoardExporter(LocalStore(tmp_path), worker=worker)
        for number in range(3):
            value = tensor(np.float32(number + (10 if worker else 0)), SCALAR)
            exporter(step(number, {"loss": value}))
        exporter(step(3, mode=ModeKeys.EVAL))
    multiplexer = event_multiplexer.EventMultiplexer().AddRunsFromDirectory(str(tmp_path)).Reload()
    runs = {run: [e.value for e in multiplexer.Scalars(run, "loss")] for run in multiplexer.Runs()}
    assert runs == {
        "TRAIN": [0, 1, 2],
        "EVAL": [0.25],
        "TRAIN/worker_1": [10, 11, 12],
        "EVAL/worker_1": [0.25],
    }


def make_hook(
    store: Store, board: Store, ranks: FixedWorkers = ONE_RANK, **options: Any
) -> TinyHook:
    """Return a hook that stores weights and shows them in TensorBoard."""
    manager = CollectionManager(
        {"weights": Collection("weights", ["w"])},
        {"weights"},
        EVERY_STEP,
        ReductionConfig(save_raw_tensor=True),
        has_summaries=True,
    )
    _, size = ranks.rank_and_size()
    setup = HookSetup(
        HookTargets(store, board),
        manager,
        HookOptions(**options),
        include_workers="all" if size > 1 else "one",
    )
    return TinyHook(setup, workers=ranks)


@pytest.mark.parametrize(("rank", "run"), [(0, "TRAIN"), (1, "TRAIN/worker_1")])
def test_a_hook_of_several_workers_keeps_them_apart(
    tmp_path: Path, trial: WrittenTrial, rank: int, run: str
) -> None:
    hook = make_hook(trial.store, LocalStore(tmp_path), FixedWorkers(rank, 2))
    hook.set_mode(ModeKeys.TRAIN)
    hook.train({"w": np.ones(5)})
    hook.close()
    assert not hook.report().writer.export_errors
    found = {str(path.parent.relative_to(tmp_path)) for path in tmp_path.rglob("*.tfevents")}
    assert found == {run}
    assert read(tmp_path / run).Histograms("weights/w")[0].histogram_value.num == 5


def test_training_and_trial_do_not_notice_that_tensorboard_cannot_be_written(
    trial: WrittenTrial, caplog: pytest.LogCaptureFixture
) -> None:
    board = Switchable(lambda _: True)
    hook = make_hook(trial.store, board)
    for _ in range(5):
        hook.train({"w": np.ones(5)})
    hook.close()
    assert list(trial.indexes()) == [0, 1, 2, 3, 4]
    assert board.attempts == 2
    assert hook.report().writer.export_errors == 2
    assert hook.report().writer.tensorboard_steps_lost == 5
    assert caplog.text.count("exporting a step failed") == 1
    assert "TensorBoard lacks 5 steps" in caplog.text


@pytest.mark.parametrize("hangs", [False, True])
def test_tensorboard_is_whole_although_the_store_of_the_trial_is_away(
    tmp_path: Path, hangs: bool
) -> None:
    away, board = Switchable(lambda _: True), Switchable()
    if hangs:
        away.gate.clear()
    hook = make_hook(away, board, close_timeout_s=0.2)
    for _ in range(30):
        hook.train({"w": np.ones(5)})
    hook.close()
    counters = hook.report().writer
    assert (counters.steps_in_spool, counters.tensorboard_steps_lost) == (30, 0)
    for key in board.list():
        LocalStore(tmp_path).put(key, board.get(key))
    shown = read(tmp_path / "GLOBAL").Histograms("weights/w")
    assert [event.step for event in shown] == list(range(30))
    away.gate.set()


def test_a_tensor_is_shown_among_every_collection_that_asks(tmp_path: Path) -> None:
    plan = SummaryPlan(scalar=True, histograms=("mine", "weights"))
    TensorBoardExporter(LocalStore(tmp_path))(step(0, {"w": tensor(np.float32([3]), plan)}))
    tags = read(tmp_path / "TRAIN").Tags()
    assert (tags["scalars"], sorted(tags["histograms"])) == (["w"], ["mine/w", "weights/w"])


@pytest.mark.parametrize(
    "value",
    [
        np.array([True, False]),
        np.empty((0, 3), "f4"),
        np.array([1j]),
        np.array(["text"]),
        np.full(5, np.nan),
        np.array([np.inf, -np.inf]),
    ],
)
def test_what_has_no_histogram_has_none(tmp_path: Path, value: NDArray[Any]) -> None:
    exporter = TensorBoardExporter(LocalStore(tmp_path))
    both = SummaryPlan(scalar=True, histograms=("weights",))
    exporter(step(0, {"odd": tensor(value, both), "loss": tensor(np.float32(1), SCALAR)}))
    tags = read(tmp_path / "TRAIN").Tags()
    assert (tags["scalars"], tags["histograms"]) == (["loss"], [])


def test_nan_is_a_scalar_and_is_left_out_of_histograms(tmp_path: Path) -> None:
    values = np.array([np.nan, 1, 2, np.inf], "f4")
    tensors = {"loss": tensor(np.float32("nan"), SCALAR), "w": tensor(values, WEIGHTS)}
    TensorBoardExporter(LocalStore(tmp_path))(step(0, tensors))
    accumulator = read(tmp_path / "TRAIN")
    assert np.isnan(accumulator.Scalars("loss")[0].value)
    assert accumulator.Histograms("weights/w")[0].histogram_value.num == 2


def test_a_step_with_nothing_to_show_writes_nothing(tmp_path: Path) -> None:
    TensorBoardExporter(LocalStore(tmp_path))(step(0, {"w": tensor(np.ones(3), None)}))
    assert files(tmp_path) == []
