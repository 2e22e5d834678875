from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hook_layer.format.index import STATISTICS_COLUMNS, IndexFile, TensorLocation
from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import event_key, index_key
from hook_layer.format.records import encode_record
from hook_layer.format.reductions import reduction_tensor_name
from hook_layer.install_hint import install_hint
from hook_layer.storage.local import LocalStore
from hook_layer.storage.memory import MemoryStore
from rule_runtime import create_trial
from rule_runtime.testing import TrialBuilder
from rule_runtime.trial.errors import InvalidWorker
from rule_runtime.trial.tensor_statistics import tensor_statistics
from rule_runtime.trial.trial import Trial
from tests.rule_runtime.counting_store import CountingStore
from tests.rule_runtime.outcomes import make_run
from tests.rule_runtime.processes import completed

TRAIN, EVAL = ModeKeys.TRAIN, ModeKeys.EVAL
LABELS = ["step", "mode", "mode_step", "worker", "tensor"]


def opened(builder: TrialBuilder, **kwargs: Any) -> Trial:
    return Trial(builder.store, name="t", **kwargs)


def two_workers() -> TrialBuilder:
    builder = TrialBuilder(CountingStore(), num_workers=2)
    for step in range(4):
        for worker in ("worker_1", "worker_0"):
            tensors = {"w": np.arange(6.0).reshape(2, 3) * step, "loss": np.float32(10 - step)}
            mode = EVAL if step == 2 else TRAIN
            builder.step(step, tensors, mode=mode, worker=worker)
    builder.end()
    return builder


# ---------------------------------------------------------------------- to_dataframe


def test_a_row_for_each_step_tensor_and_worker_in_that_order() -> None:
    frame = opened(two_workers()).to_dataframe()
    assert list(frame.columns) == [*LABELS, "value", *STATISTICS_COLUMNS]
    expected = [
        (step, "EVAL" if step == 2 else "TRAIN", {0: 0, 1: 1, 2: 0, 3: 2}[step], worker, name)
        for step in range(4)
        for name in ("loss", "w")
        for worker in ("worker_0", "worker_1")
    ]
    assert list(frame[LABELS].itertuples(index=False, name=None)) == expected
    assert frame.loc[frame.tensor == "loss", "value"].tolist() == [10, 10, 9, 9, 8, 8, 7, 7]
    assert frame.loc[frame.tensor == "w", "value"].isna().all()
    assert frame.loc[frame.tensor == "w", "max"].tolist() == [0, 0, 5, 5, 10, 10, 15, 15]


def test_what_is_chosen_is_all_there_is() -> None:
    builder = two_workers()
    builder.collections(odd=("^w$",))
    trial = opened(builder)
    assert set(trial.to_dataframe(regex="^l").tensor) == {"loss"}
    assert set(trial.to_dataframe(collection="odd").tensor) == {"w"}
    assert trial.to_dataframe(regex="l", collection="odd").empty
    assert set(trial.to_dataframe(regex=["x", "w"], collection=trial.collection("odd")).tensor) == {
        "w"
    }
    assert set(trial.to_dataframe(mode=EVAL).step) == {2}
    assert set(trial.to_dataframe(worker="worker_1").worker) == {"worker_1"}
    assert list(trial.to_dataframe(statistics="l2").columns) == [*LABELS, "l2"]
    two = trial.to_dataframe(statistics=("std", "value"), regex="loss")
    assert list(two.columns) == [*LABELS, "std", "value"]
    assert trial.to_dataframe(regex="nowhere").empty


def test_what_does_not_exist_is_refused() -> None:
    trial = opened(two_workers())
    with pytest.raises(ValueError, match="no statistic 'median'; valid are value, size, nan"):
        trial.to_dataframe(statistics=["mean", "median"])
    with pytest.raises(InvalidWorker, match="worker_7"):
        trial.to_dataframe(worker="worker_7")


def test_a_collection_that_is_none_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    assert opened(two_workers()).to_dataframe(collection="bogus").empty
    assert "No tensors from the collection bogus were saved" in caplog.text


def test_an_empty_trial_is_an_empty_table() -> None:
    frame = Trial(MemoryStore(), name="t").to_dataframe()
    assert frame.empty
    assert list(frame.columns) == [*LABELS, "value", *STATISTICS_COLUMNS]


def test_no_event_file_is_read_where_the_index_tells() -> None:
    builder = two_workers()
    trial = opened(builder)
    store = builder.store
    assert isinstance(store, CountingStore)
    store.reset()
    assert len(trial.to_dataframe()) == 16
    assert store.calls == []


def test_only_the_sign_of_an_infinity_is_read() -> None:
    store = CountingStore()
    builder = TrialBuilder(store)
    numbers = [1.0, math.inf, -math.inf, math.nan, 2.0]
    for step, number in enumerate(numbers):
        builder.step(step, {"loss": np.float32(number), "other": np.zeros(3)})
    builder.end()
    frame = opened(builder).to_dataframe(regex="loss", statistics="value")
    np.testing.assert_array_equal(frame.value, numbers)
    events = store.gets("events/")
    assert events == [event_key(1, "worker_0"), event_key(2, "worker_0")]


def test_an_infinity_without_its_record_is_not_known() -> None:
    builder = make_run({"loss": np.float32(np.inf)}, save_values=False)
    builder.end()
    assert math.isnan(opened(builder).to_dataframe().value[0])
    builder = make_run({"loss": np.float32(np.inf)})
    builder.store.delete(event_key(0, "worker_0"))
    builder.end()
    assert math.isnan(opened(builder).to_dataframe().value[0])


def test_steps_that_a_worker_may_still_write_wait() -> None:
    builder = TrialBuilder(num_workers=2)
    for worker in ("worker_0", "worker_1"):
        builder.step(0, {"a": [1.0]}, worker=worker)
    builder.step(1, {"a": [1.0]}, worker="worker_0")
    trial = opened(builder)
    assert set(trial.to_dataframe().step) == {0}
    builder.step(1, {"a": [1.0]}, worker="worker_1")
    assert len(trial.to_dataframe()) == 4


def test_files_of_the_original_client_tell_the_same() -> None:
    frames = []
    for run in ("run-1", None):
        builder = TrialBuilder(run=run)
        for step in range(3):
            tensors = {"a": np.linspace(-1, step, 7), "b": np.float64(step), "c": np.int64(step)}
            builder.step(step, tensors)
        builder.end()
        frames.append(opened(builder).to_dataframe())
    assert len(frames[0]) == 9
    pd.testing.assert_frame_equal(*frames)


def test_where_only_the_shape_was_saved_nothing_is_known() -> None:
    builder = TrialBuilder(run=None)
    builder.step(0, {"a": np.ones(3)}, save_values=False)
    builder.end()
    trial = opened(builder)
    assert repr(trial.tensor("a")) == "<Tensor 'a': [3], TRAIN 1 (0 to 0)>"
    assert "[3]" in trial.tensor("a")._repr_html_()
    frame = trial.to_dataframe()
    assert frame.tensor.tolist() == ["a"]
    assert frame[["value", *STATISTICS_COLUMNS]].isna().all(axis=None)


def test_of_the_original_clients_files_only_short_records_are_read_for_values() -> None:
    class Measuring(MemoryStore):
        num_bytes = 0

        def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
            data = super().get(key, start, length)
            self.num_bytes += len(data) if key.startswith("events/") else 0
            return data

    store = Measuring()
    builder = TrialBuilder(store, run=None)
    builder.step(0, {"big": np.zeros(100_000), "loss": 0.5})
    builder.end()
    frame = opened(builder).to_dataframe(statistics="value")
    assert frame.set_index("tensor").value.loc["loss"] == 0.5
    assert store.num_bytes < 1000


def test_the_record_of_a_reduction_is_not_the_tensor() -> None:
    store = MemoryStore()
    name = reduction_tensor_name("w", "mean", absolute=True)
    record = encode_record(name, np.array([3.0]), step=0, mode=TRAIN, mode_step=0, wall_time=1.0)
    key = event_key(0, "worker_0")
    store.put(key, record.buffers)
    index = IndexFile(TRAIN, 0, key, (TensorLocation(name, 0, record.length),))
    store.put(index_key(0, "worker_0"), index.encode())
    frame = Trial(store, name="t").to_dataframe()
    assert frame.tensor.tolist() == ["w"]
    assert frame["abs_mean"].tolist() == [3.0]
    assert frame["mean"].isna().all()


def test_tensors_that_come_and_go_and_are_no_numbers() -> None:
    builder = make_run(
        {"text": np.array(["x", "y"]), "flag": np.array(True)},
        {"none": np.empty((0, 3)), "flag": np.array(False)},
    )
    builder.end()
    frame = opened(builder).to_dataframe().set_index(["tensor", "step"])
    assert frame["size"].to_dict() == {
        ("flag", 0): 1,
        ("text", 0): 2,
        ("flag", 1): 1,
        ("none", 1): 0,
    }
    assert frame.value.loc["flag"].tolist() == [1, 0]
    assert math.isnan(frame["mean"].loc[("text", 0)])


arrays = hnp.arrays(
    st.sampled_from([np.float32, np.float64]),
    st.sampled_from([(), (1,), (3,), (0,)]),
    elements=st.sampled_from([0.0, -1.5, 2.0, math.nan, math.inf, -math.inf]),
)


@given(
    st.lists(
        st.fixed_dictionaries({"step": st.integers(0, 4), "worker": st.sampled_from("01")}),
        unique_by=lambda at: (at["step"], at["worker"]),
        max_size=6,
    ),
    st.data(),
    st.sampled_from(["run-1", None]),
)
@settings(max_examples=40, deadline=None)
def test_every_number_is_that_of_the_tensor(
    places: list[dict[str, Any]], data: st.DataObject, run: str | None
) -> None:
    builder = TrialBuilder(run=run)
    saved = {}
    for place in sorted(places, key=lambda at: at["step"]):
        names = data.draw(st.lists(st.sampled_from("abc"), min_size=1, unique=True))
        worker = f"worker_{place['worker']}"
        tensors = {name: data.draw(arrays) for name in names}
        builder.step(place["step"], tensors, worker=worker)
        saved |= {(place["step"], name, worker): array for name, array in tensors.items()}
    builder.end()
    frame = opened(builder).to_dataframe()
    keys = list(frame[["step", "tensor", "worker"]].itertuples(index=False, name=None))
    assert keys == sorted(saved)
    expected = np.array([tensor_statistics(saved[key]) for key in keys])
    np.testing.assert_array_equal(
        frame[list(STATISTICS_COLUMNS)].to_numpy(),
        expected.reshape(len(keys), len(STATISTICS_COLUMNS)),
    )
    values = [saved[key].reshape(-1)[0] if saved[key].size == 1 else math.nan for key in keys]
    np.testing.assert_array_equal(frame.value, values)


# ---------------------------------------------------------------------- how it looks


def test_a_notebook_sees_what_a_trial_is_without_a_request() -> None:
    builder = two_workers()
    builder.collections(odd=("^w$",))
    trial = opened(builder)
    collections = trial.collections()
    store = builder.store
    assert isinstance(store, CountingStore)
    store.reset()
    page = trial._repr_html_()
    for reported in (
        "training has ended",
        "TRAIN 3 (0 to 2), EVAL 1 (0 to 0)",
        "worker_1",
        "[2, 3]",
    ):
        assert reported in page
    assert repr(trial) == (
        "<Trial 't' at memory://counting/: 4 steps, 2 workers, training has ended>"
    )
    tensor = trial.tensor("w")
    assert repr(tensor) == "<Tensor 'w': [2, 3], float64, TRAIN 3 (0 to 2), EVAL 1 (0 to 0)>"
    assert "float64" in tensor._repr_html_()
    assert "<td" in tensor._repr_html_()
    assert "15" in tensor._repr_html_()
    assert "^w$" in collections["odd"]._repr_html_()
    assert "^w$" in collections._repr_html_()
    assert repr(collections).startswith("{'weights': <TrialCollection 'weights': 0 tensors, ")
    assert repr(collections).endswith("'odd': <TrialCollection 'odd': 1 tensor, regexes: '^w$'>}")
    assert store.calls == []


def test_a_trial_that_goes_on_says_so() -> None:
    assert "training continues" in repr(opened(make_run({"a": [1.0]})))
    empty = Trial(MemoryStore(), name="t")
    assert "0 steps" in repr(empty)
    assert "none" in empty._repr_html_()


def test_names_out_of_files_are_escaped_and_long_ones_cut() -> None:
    builder = TrialBuilder()
    evil = '<script>alert("x")</script>'
    builder.step(0, {evil: [1.0], "long" * 40: [1.0]})
    builder.collections(**{evil: (evil,)})
    trial = opened(builder)
    pages = [
        trial._repr_html_(),
        trial.tensor(evil)._repr_html_(),
        trial.collections()._repr_html_(),
    ]
    for page in pages:
        assert "<script" not in page
        assert "&lt;script" in page
        assert "long" * 40 not in page


def test_of_many_tensors_only_some_are_shown() -> None:
    page = opened(make_run({f"t{at:03d}": [1.0] for at in range(300)}))._repr_html_()
    assert "280 more" in page
    assert "t019" in page
    assert "t020" not in page
    assert len(page) < 10_000


def test_damaged_index_files_are_reported() -> None:
    builder = make_run({"a": [1.0]})
    builder.store.put(index_key(1, "worker_0"), b"{")
    assert "1 index files" in opened(builder)._repr_html_()


# ---------------------------------------------------------------------- without the extra


def run(code: str) -> str:
    done = completed([sys.executable, "-c", code], timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("module", "call"),
    [
        ("pandas", "trial.to_dataframe()"),
        ("matplotlib", "trial.plot()"),
        ("matplotlib", "trial.plot_kernels('w')"),
        ("matplotlib", "__import__('rule_runtime.plotting.lines')"),
        ("jinja2", "__import__('rule_runtime.reporting.xgboost_report')"),
    ],
)
def test_what_is_not_installed_is_named_with_its_extra(module: str, call: str) -> None:
    reported = run(f"""
import sys
sys.modules[{module!r}] = None
from rule_runtime import create_trial
trial = create_trial("memory://nothing")
try:
    {call}
except ImportError as error:
    print(error.name, error)
""")
    assert reported.startswith(f"{module} ")
    assert reported.endswith(f"needs {module}: {install_hint('report')}\n")


def test_neither_is_imported_before_it_is_asked_for() -> None:
    reported = run("""
import json, sys
from rule_runtime import create_trial
trial = create_trial("memory://nothing")
repr(trial), trial._repr_html_()
print(json.dumps(list(sys.modules)))
""")
    loaded = {name.partition(".")[0] for name in json.loads(reported)}
    assert not loaded & {"pandas", "matplotlib", "jinja2"}


def test_a_folder_is_read_as_well(tmp_path: Path) -> None:
    builder = TrialBuilder(LocalStore(tmp_path))
    builder.step(0, {"a": [2.0]})
    builder.end()
    assert create_trial(tmp_path).to_dataframe().value.tolist() == [2.0]
