"""What is read of a run that a browser shows, and what is answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from hook_layer.format.job_file import JobFile
from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import INDEX_PREFIX, JOB_FILE
from hook_layer.storage.local import LocalStore
from hook_layer.storage.memory import MemoryStore
from rule_runtime.embedded.result_writer import ResultWriter
from rule_runtime.engine.registry import create_rule
from rule_runtime.live_page import run_columns, run_data
from rule_runtime.live_page.opened_run import OpenedRun
from rule_runtime.live_page.run_data import Range
from rule_runtime.testing import TrialBuilder

WHOLE = Range(-1, 1e18, 100)


def builder_in(store: Any, **options: Any) -> TrialBuilder:
    builder = TrialBuilder(store, **options)
    if builder.run:
        store.put(JOB_FILE, JobFile("job", builder.run, "local", "2026-11-21T10:00:00Z").encode())
    return builder


def opened(store: Any) -> OpenedRun:
    run = OpenedRun(store, lambda _: [("NonFinite", create_rule("NonFinite", {}))])
    read(run)
    return run


def read(run: OpenedRun) -> None:
    """Read all of a run, and evaluate it."""
    run.refresh()
    while run.num_unread or run.is_evaluating:
        run.refresh()
    run.refresh()


def curve(run: OpenedRun, tensor: str, shown: Range = WHOLE, **chosen: Any) -> dict[str, Any]:
    found = run_data.curves(run, [tensor], chosen.get("statistic", "mean"), [], shown)
    assert len(found) == 1
    return found[0]


class CountingFolder(LocalStore):
    """A folder that counts what is read of it."""

    read: ClassVar[list[str]] = []

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        self.read.append(key)
        return super().get(key, start, length)

    def counted(self, prefix: str) -> int:
        return sum(key.startswith(prefix) for key in self.read)


def test_each_index_file_is_read_once_and_answers_read_none(tmp_path: Path) -> None:
    store = CountingFolder(tmp_path)
    builder = builder_in(store)
    for step in range(300):
        builder.step(step, {"loss": np.float32(step or np.nan)}, save_values=False)
    state = builder.evaluate(create_rule("NonFinite", {}))
    ResultWriter(store, lambda: 0.0).write("run-1", {}, {"NonFinite": state})
    store.read.clear()
    run = opened(store)
    assert [each.name for each in run.verdicts] == ["NonFinite"]
    assert store.counted(INDEX_PREFIX) == 300
    store.read.clear()
    for width in (10, 100, 1000):
        assert len(curve(run, "loss", Range(-1, 1e9, width))["steps"]) == min(width, 300)
    assert not store.read
    builder.step(300, {"loss": np.float32(-7)}, save_values=False)
    assert run.refresh()
    assert (store.counted(INDEX_PREFIX), store.counted("events/")) == (1, 0)
    assert curve(run, "loss")["low"][-1] == -7


@pytest.mark.parametrize("limit", [1 << 27, 1200])
def test_spikes_of_one_step_are_answered_at_every_zoom(
    monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(run_columns, "_MAX_NUMBERS", limit)
    store, spikes = MemoryStore(), {7, 130, 131, 255, 399}
    builder = builder_in(store)
    for step in range(400):
        value = np.nan if step == 200 else 1e6 + step if step in spikes else step % 7
        builder.step(step, {"loss": np.float32(value)}, save_values=False)
    run = opened(store)
    fold = run.columns.steps_per_row
    assert (fold > 1) == (limit == 1200)
    assert fold <= 16
    held = run.columns.points("loss", "mean", "worker_0", "TRAIN")
    for spike in spikes:
        (at,) = np.flatnonzero(
            (held.steps <= spike) & (spike < held.steps + fold) & (held.high >= 1e6)
        )
        assert held.high[at] - 1e6 - spike in range(fold)
    for width in (1, 3, 17, 100, 4000):
        whole = curve(run, "loss", Range(-1, 1e9, width))
        assert max(number for number in whole["high"] if number is not None) == 1e6 + 399
        assert len(whole["bad"]) == 1
        assert abs(whole["bad"][0] - 200) <= 400 / width + fold
        for spike in spikes:
            near = curve(run, "loss", Range(spike, spike, width))
            assert 1e6 + spike in near["high"] or fold > 1


def test_modes_and_ranks_are_apart_and_ranks_are_read_on_request() -> None:
    builder = builder_in(MemoryStore(), num_workers=2)
    for step in range(6):
        mode = ModeKeys.EVAL if step % 3 == 2 else ModeKeys.TRAIN
        for rank in range(2):
            value = {"loss": np.float32(10 * rank + step)}
            builder.step(step, value, mode=mode, worker=f"worker_{rank}")
    run = opened(builder.store)
    workers = ["worker_0", "worker_1"]
    assert run.workers == workers
    assert {each["mode"] for each in run_data.curves(run, ["loss"], "mean", [], WHOLE)} == {
        *("TRAIN", "EVAL")
    }
    run.has([*workers, "worker_9"])
    read(run)
    found = run_data.curves(run, ["loss"], "mean", workers, WHOLE)
    assert {(each["worker"], each["mode"]): each["low"] for each in found} == {
        ("worker_0", "TRAIN"): [0, 1, 3, 4],
        ("worker_0", "EVAL"): [2, 5],
        ("worker_1", "TRAIN"): [10, 11, 13, 14],
        ("worker_1", "EVAL"): [12, 15],
    }


def test_a_run_whose_every_number_is_bad_is_answered_as_json() -> None:
    builder = builder_in(MemoryStore())
    for step in range(5):
        bad = np.float32(np.inf if step % 2 else np.nan)
        tensors = {"loss": bad, "gradient/a": np.full(3, bad), "a": np.full(3, bad)}
        builder.step(step, {**tensors, "huge": np.float64(1e300)}, save_values=False)
    run = opened(builder.store)
    assert curve(run, "loss")["bad"] == [0, 1, 2, 3, 4]
    assert set(curve(run, "loss")["low"]) == {None}
    assert curve(run, "huge")["high"][0] == pytest.approx(3.4e38, rel=0.01)
    for kind in ("gradients", "updates", "weights"):
        json.dumps(run_data.heat_map_of(run, kind, "", WHOLE), allow_nan=False)
    assert [each.name for each in run.verdicts] == ["NonFinite"]


def test_another_run_in_the_folder_replaces_the_first() -> None:
    store = MemoryStore()
    first = builder_in(store, run="run-1")
    for step in range(50):
        first.step(step, {"loss": np.float32(1)})
    run = opened(store)
    second = builder_in(store, run="run-2")
    for step in range(3):
        second.step(step, {"loss": np.float32(2)})
    read(run)
    assert (run.run, curve(run, "loss")["low"]) == ("run-2", [2, 2, 2])


def test_damaged_files_are_named_and_the_rest_is_shown() -> None:
    builder = builder_in(MemoryStore())
    keys = [builder.step(step, {"loss": np.float32(1)}) for step in range(4)]
    builder.store.put(keys[1], b"{")
    run = opened(builder.store)
    assert curve(run, "loss")["steps"] == [0, 2, 3]
    assert keys[1] in run.problems[0]


def test_files_of_the_original_client_are_shown() -> None:
    builder = builder_in(MemoryStore(), run=None)
    for step in range(3):
        builder.step(step, {"loss": np.float32(step)})
    assert curve(opened(builder.store), "loss")["low"] == [0, 1, 2]


def test_bytes_of_a_curve_depend_on_the_width_not_on_the_steps() -> None:
    builder = builder_in(MemoryStore())
    for step in range(600):
        builder.step(step, {"loss": np.float32(1 / (step + 3))}, save_values=False)
    run = opened(builder.store)
    sizes = {}
    for width in (50, 100, 200):
        found = curve(run, "loss", Range(-1, 1e9, width))
        assert len(found["steps"]) == width
        sizes[width] = len(json.dumps(found))
    assert sizes[200] < 200 * 40
    assert sizes[50] < sizes[100] < sizes[200]


def test_a_problem_of_rules_stays_until_a_later_read_solves_it() -> None:
    builder = builder_in(MemoryStore())
    builder.step(0, {"loss": np.float32(1)})
    problems = ["there is no such rule"]

    def rules(_: Any) -> list[Any]:
        if problems:
            raise ValueError(problems[0])
        return []

    now = [0.0]
    run = OpenedRun(builder.store, rules, clock=lambda: now[0])
    shown = []
    for now[0] in (0.0, 1.0, 2.5, 3.0, 5.0):
        if now[0] == 3.0:
            problems.clear()
        run.refresh()
        shown.append(run.problem)
    assert shown == ["there is no such rule"] * 4 + [""]
