"""Files that are damaged are told of, and what is lost with them is little."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from hook_layer.format.errors import RecordError
from hook_layer.format.paths import event_key
from rule_runtime.testing import TrialBuilder
from rule_runtime.trial.trial import Trial


def opened(builder: TrialBuilder) -> Trial:
    return Trial(builder.store, name="t")


def three_steps(*, run: str | None) -> TrialBuilder:
    builder = TrialBuilder(run=run)
    for step in range(3):
        builder.step(step, {"a": np.float64(step), "b": np.arange(9.0) + step})
    builder.end()
    return builder


@pytest.mark.parametrize("content", [b"", b'{"meta": {', b"[1, 2]", bytes(range(128, 256))])
@pytest.mark.parametrize("run", ["run-1", None])
def test_an_index_file_is_warned_of_once(
    content: bytes, run: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    builder = three_steps(run=run)
    key = builder.keys[1]
    builder.store.put(key, content)
    trial = opened(builder)
    trial.refresh()
    assert trial.steps() == [0, 2]
    assert list(trial.problems) == [key]
    (record,) = [each for each in caplog.records if key in each.message]
    assert record.levelno == logging.WARNING
    assert record.message.startswith(f"{key} is damaged: ")
    assert record.message.count(key) == 1
    assert record.message.endswith("; step 1 of worker_0 is left out")


@pytest.mark.parametrize("num_bytes", [None, 0, 40])
def test_what_an_event_file_has_lost_is_nan_in_a_table(
    num_bytes: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    builder = three_steps(run=None)  # without statistics, so that event files are read
    key = event_key(1, "worker_0")
    if num_bytes is None:
        builder.store.delete(key)
    else:
        builder.store.put(key, builder.store.get(key)[:num_bytes])
    frame = opened(builder).to_dataframe(statistics=["value", "mean"])
    assert frame[frame.tensor == "a"].value.tolist() == pytest.approx([0, np.nan, 2], nan_ok=True)
    assert frame[frame.tensor == "b"]["mean"].isna().tolist() == [False, True, False]
    (record,) = [each for each in caplog.records if key in each.message]
    assert record.levelno == logging.WARNING
    assert record.message.endswith("; what the table cannot have of it is NaN")


def test_what_stands_ahead_of_the_damage_is_in_the_table() -> None:
    builder = three_steps(run=None)
    key = event_key(1, "worker_0")
    builder.store.put(key, builder.store.get(key)[:-1])
    frame = opened(builder).to_dataframe(statistics=["value", "mean"])
    assert frame[frame.tensor == "a"].value.tolist() == [0, 1, 2]
    assert frame[frame.tensor == "b"]["mean"].isna().tolist() == [False, True, False]


@pytest.mark.parametrize("num_bytes", [0, 40])
def test_a_value_behind_the_end_of_its_file_is_reported_as_such(num_bytes: int) -> None:
    builder = three_steps(run="run-1")
    key = event_key(1, "worker_0")
    builder.store.put(key, builder.store.get(key)[:num_bytes])
    with pytest.raises(RecordError, match=f"the file is cut off.* it has {num_bytes}$"):
        opened(builder).tensor("a").value(1)
