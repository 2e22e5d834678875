"""Index files of every content, for tests of properties."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from hook_layer.format.index import (
    STATISTICS_COLUMNS,
    IndexFile,
    Statistics,
    TensorLocation,
    TensorShape,
)
from hook_layer.format.modes import ModeKeys

__all__ = ["EVENT", "index_files"]

EVENT = "events/000000000000/000000000000_worker_0.tfevents"
names = st.text(max_size=20) | st.sampled_from(["fc.weight", '", "run": "', "}, {", "]"])
counts = st.integers(0, 2**62)


@st.composite
def index_files(draw: st.DrawFn) -> IndexFile:
    locations = tuple(draw(st.lists(st.builds(TensorLocation, names, counts, counts), max_size=3)))
    shapes = tuple(
        draw(
            st.lists(
                st.builds(TensorShape, names, names, st.lists(counts, max_size=3).map(tuple)),
                max_size=3,
                min_size=0 if locations else 1,
            )
        )
    )
    return IndexFile(
        draw(st.sampled_from(ModeKeys)),
        draw(counts),
        EVENT if locations else None,
        locations,
        shapes,
        draw(st.none() | statistics_blocks()),
        draw(st.none() | names),
        draw(st.none() | st.integers(1, 1000)),
        draw(st.none() | st.integers(1, 2**62)),
        time=draw(st.none() | st.floats(0, 1e11)),
    )


@st.composite
def statistics_blocks(draw: st.DrawFn) -> Statistics:
    rows = draw(st.integers(0, 4))
    columns = STATISTICS_COLUMNS[: draw(st.integers(0, len(STATISTICS_COLUMNS)))]
    numbers = st.floats(width=64)
    values = draw(st.lists(numbers, min_size=rows * len(columns), max_size=rows * len(columns)))
    rows_of = {"min_size": rows, "max_size": rows}
    return Statistics(
        columns,
        tuple(draw(st.lists(names, **rows_of))),
        tuple(draw(st.lists(st.sampled_from(["float32", "bfloat16"]), **rows_of))),
        tuple(draw(st.lists(st.lists(counts, max_size=2).map(tuple), **rows_of))),
        np.array(values, dtype=np.float64).reshape(rows, len(columns)),
        tuple(draw(st.lists(st.none() | st.integers(0, 2**32 - 1), **rows_of))),
    )
