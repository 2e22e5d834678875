from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from hook_layer.format.collections_file import MAX_COLLECTIONS_BYTES
from hook_layer.format.errors import RecordError
from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import collections_key, event_key
from hook_layer.storage.memory import MemoryStore
from rule_runtime.testing import TrialBuilder
from rule_runtime.trial.errors import InvalidWorker, TensorUnavailableForStep
from rule_runtime.trial.step_index import load_step_files
from rule_runtime.trial.step_view import StepReader


class RecordingStore(MemoryStore):
    def __init__(self) -> None:
        super().__init__("recording")
        self.read: list[tuple[str, int, int | None]] = []

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        self.read.append((key, start, length))
        return super().get(key, start, length)

    def list(self, prefix: str = "", after: str | None = None) -> Iterator[str]:  # noqa: ARG002
        raise AssertionError("a view must not list")


def test_rows_of_several_workers_are_one_vector() -> None:
    trial = TrialBuilder(num_workers=2)
    trial.step(7, {"a": [1.0, 3.0], "b": [5.0]}, mode=ModeKeys.EVAL, worker="worker_1")
    trial.step(7, {"b": [7.0]}, mode=ModeKeys.EVAL, worker="worker_0")
    (view,) = trial.views()
    assert (view.step, view.mode, view.mode_step) == (7, ModeKeys.EVAL, 0)
    assert (view.workers, view.is_complete) == (("worker_0", "worker_1"), True)
    rows = view.tensors()
    assert rows.names == ("b", "a", "b")
    assert rows.workers == ("worker_0", "worker_1", "worker_1")
    assert len(rows) == 3
    np.testing.assert_array_equal(rows.column("mean"), [7.0, 2.0, 5.0])
    np.testing.assert_array_equal(rows.column("size"), [1, 2, 1])
    assert view.tensors(regex=("^a$",)).names == ("a",)
    assert len(view.tensors(regex=("nothing",))) == 0
    assert view.tensors(regex=("nothing",)).column("mean").shape == (0,)
    with pytest.raises(ValueError, match="there is no statistic 'median'; valid are size, nan"):
        rows.column("median")
    assert float(view.value("b")[0]) == 7.0
    assert float(view.value("a")[0]) == 1.0
    assert float(view.value("b", "worker_1")[0]) == 5.0
    with pytest.raises(InvalidWorker):
        view.value("b", "worker_9")
    with pytest.raises(TensorUnavailableForStep):
        view.value("c")


def test_statistics_cost_no_read_and_the_collections_file_is_read_once() -> None:
    store = RecordingStore()
    trial = TrialBuilder(store)
    trial.collections(gradients=("^gradient",))
    for step in range(5):
        trial.step(step, {"gradient/a": [1.0], "w": [2.0]})
    views = trial.views()
    store.read.clear()
    for view in views:
        assert view.tensors(collections=("gradients",)).column("abs_mean").tolist() == [1.0]
    assert store.read == [(collections_key("worker_0"), 0, MAX_COLLECTIONS_BYTES + 1)]


def test_new_names_make_the_collections_file_be_read_again() -> None:
    trial = TrialBuilder()
    trial.collections(mine=("^a$",))
    trial.step(0, {"a": [1.0], "b": [1.0]})
    reader = StepReader(trial.store)
    files = load_step_files(trial.store, trial.keys)
    view = reader.view(0, files, num_workers=1)
    assert view.tensors(collections=("mine",)).names == ("a",)
    trial.collections(mine=("^a$", "^c$"))
    trial.step(1, {"a": [1.0], "b": [1.0], "c": [1.0]})
    files = load_step_files(trial.store, trial.keys[1:])
    view = reader.view(1, files, num_workers=1)
    assert view.tensors(collections=("mine",)).names == ("a", "c")


def test_files_without_statistics_are_read_once_and_together() -> None:
    store = RecordingStore()
    trial = TrialBuilder(store, run=None)
    values = {f"gradient/{n}": np.full(4, float(n)) for n in range(6)}
    trial.step(3, values)
    (view,) = trial.views()
    store.read.clear()
    rows = view.tensors(regex=("^gradient",))
    np.testing.assert_array_equal(rows.column("abs_mean"), np.arange(6.0))
    np.testing.assert_array_equal(rows.column("l1"), 4 * np.arange(6.0))
    assert [key for key, *_ in store.read] == [event_key(3, "worker_0")]


def test_a_value_is_preferred_to_reductions_which_are_of_all_elements() -> None:
    trial = TrialBuilder(run=None)
    trial.step(0, {"smdebug/reductions/mean/w": np.float32([np.nan]), "w": [np.nan, 2.0]})
    (view,) = trial.views()
    rows = view.tensors()
    assert rows.names == ("w",)
    assert rows.column("mean").tolist() == [2.0]
    assert rows.column("nan").tolist() == [1.0]


def test_a_damaged_record_is_told() -> None:
    trial = TrialBuilder()
    trial.step(0, {"a": np.arange(10.0)})
    key = event_key(0, "worker_0")
    data = bytearray(trial.store.get(key))
    data[-20] ^= 1
    trial.store.put(key, bytes(data))
    (view,) = trial.views()
    assert view.tensors().column("mean").tolist() == [4.5]
    with pytest.raises(RecordError, match="checksum"):
        view.value("a")
    trial.store.delete(key)
    with pytest.raises(TensorUnavailableForStep):
        view.value("a")
