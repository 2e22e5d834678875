from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hook_layer.format.errors import RecordError
from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import collections_key, event_key, index_key
from rule_runtime.testing import TrialBuilder
from rule_runtime.trial.errors import CollectionUnavailable, InvalidWorker, TensorUnavailableForStep
from rule_runtime.trial.step_index import load_step_files
from rule_runtime.trial.step_view import StepReader
from tests.rule_runtime.counting_store import CountingStore
from tests.rule_runtime.outcomes import make_run


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


def test_a_misspelled_collection_is_named_unless_the_run_has_it() -> None:
    trial = make_run({"a.weight": [1.0]})
    (view,) = trial.views()
    with pytest.raises(CollectionUnavailable, match="'weigths'; did you mean 'weights'"):
        view.tensors(collections="weigths")
    assert len(view.tensors(collections="of_the_script")) == 0
    (view,) = make_run({"a.weight": [1.0]}, collections={"weigths": ("^a",)}).views()
    assert view.tensors(collections="weigths").names == ("a.weight",)


def test_statistics_cost_no_read_and_the_collections_file_is_read_once() -> None:
    store = CountingStore()
    trial = TrialBuilder(store)
    trial.collections(gradients=("^gradient",), weights=("^w",))
    for step in range(5):
        trial.step(step, {"gradient/a": [1.0], "w": [2.0]})
    views = trial.views()
    store.reset()
    for view in views:
        assert view.tensors(collections=("gradients",)).column("abs_mean").tolist() == [1.0]
        assert view.tensors(collections=("weights",)).column("abs_mean").tolist() == [2.0]
    assert store.calls == [f"GET {collections_key('worker_0')}"]


def test_new_names_make_the_collections_file_be_read_again() -> None:
    trial = make_run({"a": [1.0], "b": [1.0]}, collections={"mine": ("^a$",)})
    reader = StepReader(trial.store)
    files = load_step_files(trial.store, trial.keys)
    view = reader.view(0, files, num_workers=1)
    assert view.tensors(collections=("mine",)).names == ("a",)
    trial.collections(mine=("^a$", "^c$"))
    trial.step(1, {"a": [1.0], "b": [1.0], "c": [1.0]})
    files = load_step_files(trial.store, trial.keys[1:])
    view = reader.view(1, files, num_workers=1)
    assert view.tensors(collections=("mine",)).names == ("a", "c")


def test_forgotten_collections_files_are_read_again_and_known_selections_are_not() -> None:
    store = CountingStore()
    trial = TrialBuilder(store)
    trial.step(0, {"a": [1.0], "b": [1.0]})
    reader = StepReader(store)
    view = reader.view(0, load_step_files(store, trial.keys), num_workers=1)
    assert view.tensors(collections=("mine",)).names == ()
    store.reset()
    assert view.tensors(collections=("mine",)).names == ()
    assert store.gets() == []  # though there is no file
    for names in (("a",), ("b",)):
        trial.collections(mine=names)
        reader.collections.forget()
        view = reader.view(0, load_step_files(store, trial.keys), num_workers=1)
        found = view.tensors(collections=("mine", "losses")).names
        assert found == names
        assert view.tensors(collections=("mine", "losses")).names == names


def test_files_without_statistics_are_read_once_and_together() -> None:
    store = CountingStore()
    trial = TrialBuilder(store, run=None)
    values = {f"gradient/{n}": np.full(4, float(n)) for n in range(6)}
    trial.step(3, values)
    (view,) = trial.views()
    store.reset()
    rows = view.tensors(regex=("^gradient",))
    np.testing.assert_array_equal(rows.column("abs_mean"), np.arange(6.0))
    np.testing.assert_array_equal(rows.column("l1"), 4 * np.arange(6.0))
    assert store.gets() == [event_key(3, "worker_0")]


def test_a_value_is_preferred_to_reductions_which_are_of_all_elements() -> None:
    trial = TrialBuilder(run=None)
    trial.step(0, {"smdebug/reductions/mean/w": np.float32([np.nan]), "w": [np.nan, 2.0]})
    (view,) = trial.views()
    rows = view.tensors()
    assert rows.names == ("w",)
    assert rows.column("mean").tolist() == [2.0]
    assert rows.column("nan").tolist() == [1.0]


def test_a_damaged_record_is_reported() -> None:
    trial = make_run({"a": np.arange(10.0)})
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


# ---------------------------------------------------------------------------------- rows of tensors


def two_workers() -> TrialBuilder:
    trial = TrialBuilder(num_workers=2)
    trial.step(0, {"a": np.zeros((2, 3)), "b": np.float32(1)}, worker="worker_0")
    trial.step(0, {"c": np.arange(4), "b": np.float32(2)}, worker="worker_1")
    return trial


@pytest.mark.parametrize(
    "chosen",
    [
        [],
        [0],
        [3, 0, 2, 1],
        [1, 1],
        [-1],
        np.array([True, False, True, True]),
        np.array([False] * 4),
        np.array([2, 3]),
    ],
)
def test_selected_rows_are_those_of_an_array(chosen: list[int]) -> None:
    (view,) = two_workers().views()
    rows = view.tensors()
    selected = rows.select(chosen)
    index = np.array(chosen, dtype=np.intp) if isinstance(chosen, list) else chosen
    every = np.arange(4)[index]
    assert selected.names == tuple(rows.names[i] for i in every)
    assert selected.workers == tuple(rows.workers[i] for i in every)
    assert selected.shapes == tuple(rows.shapes[i] for i in every)
    assert selected.dtypes == tuple(rows.dtypes[i] for i in every)
    for column in ("size", "mean"):
        np.testing.assert_array_equal(selected.column(column), rows.column(column)[index])
    assert len(selected.select(np.ones(len(selected), dtype=bool))) == len(every)


def test_rows_that_do_not_exist_are_refused() -> None:
    (view,) = two_workers().views()
    with pytest.raises(ValueError, match="a mask of shape"):
        view.tensors().select(np.array([True]))
    with pytest.raises(IndexError):
        view.tensors().select([4])


def test_shapes_and_types_are_those_of_the_index() -> None:
    (view,) = two_workers().views()
    rows = view.tensors()
    assert rows.shapes == ((2, 3), (), (4,), ())
    assert rows.dtypes == ("float64", "float32", "int64", "float32")
    assert rows.have_values.tolist() == [True] * 4


def test_shapes_without_statistics_are_those_of_tensors_without_values() -> None:
    trial = TrialBuilder(run=None)
    trial.step(0, {"a": np.zeros((2, 3))}, save_values=False)
    trial.step(1, {"a": np.zeros((2, 3))})
    without, with_value = trial.views()
    assert with_value.tensors().shapes == (None,)
    assert with_value.tensors().dtypes == (None,)
    assert with_value.tensors().have_values.tolist() == [True]
    (view,) = make_run({"a": np.zeros((2, 3))}, save_values=False).views()
    assert view.tensors().shapes == ((2, 3),)
    assert view.tensors().have_values.tolist() == [False]
    assert without.tensors().names == ()


def test_a_block_that_does_not_tell_everything_is_made_up_for_by_values() -> None:
    """One tensor is not in the block, one has no statistics there, and one column is missing."""
    trial = make_run({"a": [1.0, 3.0], "b": [5.0], "c": [7.0]})
    (file,) = load_step_files(trial.store, trial.keys)
    assert file.index is not None
    block = file.index.statistics
    assert block is not None
    values = block.values[:2, :-1].copy()
    values[1] = np.nan
    less = replace(
        block,
        columns=block.columns[:-1],
        tensors=block.tensors[:2],
        dtypes=block.dtypes[:2],
        shapes=block.shapes[:2],
        values=values,
        crc32c=block.crc32c[:2],
    )
    file = replace(file, index=replace(file.index, statistics=less))
    rows = StepReader(trial.store).view(0, [file], num_workers=1).tensors()
    assert rows.names == ("a", "b", "c")
    assert rows.column("mean").tolist() == [2, 5, 7]
    np.testing.assert_array_equal(rows.column("l2"), [np.nan, 5, 7])
    assert rows.shapes == ((2,), (1,), None)
    assert rows.dtypes == ("float64", "float64", None)


# ------------------------------------------------------------------------------------ earlier steps


def test_an_earlier_step_costs_a_read_for_each_worker() -> None:
    store = CountingStore()
    trial = TrialBuilder(store, num_workers=2)
    for step in (3, 8, 9):
        for worker in ("worker_0", "worker_1"):
            trial.step(step, {"a": [float(step)]}, mode_step=step // 2, worker=worker)
    files = [file for file in load_step_files(store, trial.keys) if file.step == 9]
    view = StepReader(store).view(9, files, num_workers=2)
    store.reset()
    earlier = view.earlier(3)
    assert earlier is not None
    assert (earlier.step, earlier.mode_step, earlier.is_complete) == (3, 1, True)
    assert earlier.tensors().column("mean").tolist() == [3, 3]
    assert store.gets() == [key for key in trial.keys if "003_worker" in key]
    assert float(earlier.value("a", "worker_1")[0]) == 3
    store.reset()
    assert view.earlier(3) is not None
    assert store.calls == []  # it was looked at last
    assert view.earlier(4) is None
    for number in (9, 10, -1):
        with pytest.raises(ValueError, match=f"step {number} is not before step 9"):
            view.earlier(number)


def test_an_earlier_step_is_one_of_the_same_run_and_of_these_workers() -> None:
    trial = TrialBuilder(num_workers=2)
    trial.step(0, {"a": [1.0]}, worker="worker_0")
    trial.step(1, {"a": [1.0]}, worker="worker_1")
    trial.step(2, {"a": [1.0]}, worker="worker_0")
    TrialBuilder(trial.store, run="run-0").step(1, {"a": [5.0]}, worker="worker_0")
    views = {view.step: view for view in trial.views()}
    assert views[2].earlier(1) is None
    earlier = views[2].earlier(0)
    assert earlier is not None
    assert (earlier.workers, earlier.is_complete) == (("worker_0",), False)


def test_files_that_cannot_be_parsed_are_no_earlier_step() -> None:
    trial = TrialBuilder()
    for step in (0, 1):
        trial.step(step, {"a": [1.0]})
    trial.store.put(trial.keys[0], b"{")
    files = load_step_files(trial.store, trial.keys[1:])
    assert StepReader(trial.store).view(1, files, num_workers=1).earlier(0) is None


def test_what_is_kept_of_earlier_steps_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    store = CountingStore()
    trial = TrialBuilder(store)
    for step in range(6):
        trial.step(step, {"a": [1.0]})
    views = trial.views()
    two_files = 5 << 9  # each counts as 1 KiB
    monkeypatch.setattr("rule_runtime.trial.step_view._RECENT_BYTES", two_files)
    reader = StepReader(store)
    for view in views:
        files = load_step_files(store, [index_key(view.step, "worker_0")])
        last = reader.view(view.step, files, num_workers=1)
    store.reset()
    assert last.earlier(4) is not None
    assert store.calls == []
    assert last.earlier(0) is not None
    assert len(store.calls) == 1


def test_values_come_one_after_the_other() -> None:
    trial = two_workers()
    (view,) = trial.views()
    assert [name for name, _ in view.iter_values(("b", "a", "c"), "worker_0")] == ["a", "b"]
    assert set(view.value_bytes("worker_1")) == {"b", "c"}
    trial.store.delete(event_key(0, "worker_0"))
    assert list(view.iter_values(("a",), "worker_0")) == []
    for call in (view.value_bytes, lambda worker: list(view.iter_values(("a",), worker))):
        with pytest.raises(InvalidWorker):
            call("worker_9")
