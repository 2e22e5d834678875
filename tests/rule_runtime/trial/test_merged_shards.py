"""Statistics of parts of a tensor, merged into those of the tensor."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hook_layer.capture.statistics import array_statistics
from hook_layer.format.index import (
    STATISTICS_COLUMNS,
    IndexFile,
    Statistics,
    TensorShape,
    parse_index,
)
from hook_layer.format.modes import ModeKeys
from hook_layer.format.statistics_block import Shard
from hook_layer.storage.memory import MemoryStore
from rule_runtime.trial.step_index import StepFile
from rule_runtime.trial.step_view import StepReader, StepView

Part = tuple[npt.NDArray[np.float64], Shard | None]


def file(worker: int, **parts: Part) -> StepFile:
    """Return an index file with these tensors, as a reader parses it."""
    names = tuple(parts)
    values = np.array([array_statistics(value) for value, _ in parts.values()])
    shapes = tuple(value.shape for value, _ in parts.values())
    index = IndexFile(
        ModeKeys.TRAIN,
        0,
        None,
        shapes=tuple(TensorShape(n, n, shape) for n, shape in zip(names, shapes, strict=True)),
        statistics=Statistics(
            STATISTICS_COLUMNS,
            names,
            ("float64",) * len(names),
            shapes,
            values,
            (None,) * len(names),
            tuple(shard for _, shard in parts.values()),
        ),
        run="run-1",
        workers=2,
        sequence=1,
    )
    parsed = parse_index(index.encode(), file="f")
    return StepFile(f"f{worker}", 0, f"worker_{worker}", parsed)


def view(*files: StepFile) -> StepView:
    return StepReader(MemoryStore()).view(0, files, num_workers=len(files))


numbers = st.floats(-1e6, 1e6) | st.just(float("nan")) | st.just(float("inf"))


@given(st.lists(numbers, max_size=30), st.lists(numbers, max_size=30))
def test_statistics_of_two_parts_are_those_of_both(first: list[float], second: list[float]) -> None:
    whole = np.array([*first, *second])
    parts = [
        file(at, w=(np.array(part), Shard(whole.shape, (at,))))
        for at, part in enumerate((first, second))
    ]
    rows = view(*parts).tensors()
    assert (rows.names, rows.workers, rows.shapes) == (("w",), ("worker_0",), (whole.shape,))
    merged = [rows.column(name)[0] for name in STATISTICS_COLUMNS]
    scale = float(np.nanmax(np.abs(np.where(np.isfinite(whole), whole, 0)), initial=1.0))
    np.testing.assert_allclose(merged, array_statistics(whole), rtol=1e-6, atol=1e-9 * scale)


def test_replicas_of_a_part_count_once() -> None:
    values = np.arange(4.0)
    parts = [file(at, w=(values[2 * (at % 2) :][:2], Shard((4,), (at % 2,)))) for at in range(4)]
    rows = view(*parts).tensors()
    assert rows.names == ("w",)
    assert rows.column("size")[0] == 4
    assert rows.column("mean")[0] == pytest.approx(1.5)


def test_whole_tensors_and_addends_stay_those_of_each_rank() -> None:
    one = np.ones(2)
    files = [file(at, w=(one, None), g=(one, Shard((2,), None))) for at in range(2)]
    rows = view(*files).tensors()
    assert rows.names == ("w", "g", "w", "g")


def test_a_part_that_only_a_later_rank_has_is_found_there() -> None:
    files = {
        "worker_0": file(0, a=(np.ones(3), None)),
        "worker_1": file(1, w=(np.ones(2), Shard((2,), (1,)))),
    }
    rows = view(*files.values()).tensors()
    assert (rows.names, rows.workers) == (("a", "w"), ("worker_0", "worker_1"))
