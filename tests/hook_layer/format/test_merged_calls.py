"""An index file that is too long for readers is shortened, and says what it stands for."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hook_layer.capture.statistics import array_statistics
from hook_layer.format import index as index_module
from hook_layer.format.index import (
    STATISTICS_COLUMNS,
    IndexFile,
    Statistics,
    TensorLocation,
    TensorShape,
    parse_index,
)
from hook_layer.format.merged_calls import shortened
from hook_layer.format.modes import ModeKeys

Arrays = dict[str, npt.NDArray[np.float64]]


def index_of(tensors: Arrays, valued: tuple[str, ...] = ()) -> IndexFile:
    names = tuple(tensors)
    shapes = tuple(array.shape for array in tensors.values())
    return IndexFile(
        ModeKeys.TRAIN,
        0,
        "events/000000000000/000000000000_worker_0.tfevents" if valued else None,
        locations=tuple(TensorLocation(name, 10 * at, 10) for at, name in enumerate(valued)),
        shapes=tuple(TensorShape(n, n, a.shape) for n, a in tensors.items() if n not in valued),
        statistics=Statistics(
            STATISTICS_COLUMNS,
            names,
            ("float64",) * len(names),
            shapes,
            np.array([array_statistics(array) for array in tensors.values()]),
            tuple(7 if name in valued else None for name in names),
        ),
        run="run-1",
        sequence=1,
    )


def statistics_in(index: IndexFile, name: str) -> npt.NDArray[np.float64]:
    assert index.statistics is not None
    return index.statistics.values[index.statistics.tensors.index(name)]


numbers = st.floats(-1e6, 1e6) | st.just(float("nan")) | st.just(float("inf"))


@given(st.lists(st.lists(numbers, min_size=2, max_size=2), min_size=1, max_size=30))
def test_statistics_are_those_of_all_calls(calls: list[list[float]]) -> None:
    tensors = {f"cell_output_{at}": np.array(call) for at, call in enumerate(calls)}
    weight = np.array([1.0, 2.0])
    short = shortened(index_of({**tensors, "cell_weight": weight}))
    read = parse_index(short.data, file="f")
    assert read.statistics is not None
    assert read.statistics.tensors == ("cell_output_0", "cell_weight")
    assert read.merged == ({"cell_output_0": len(calls)} if len(calls) > 1 else {})
    whole = np.array(calls).ravel()
    scale = float(np.nanmax(np.abs(np.where(np.isfinite(whole), whole, 0)), initial=1.0))
    found, expected = statistics_in(read, "cell_output_0"), array_statistics(whole)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9 * scale)
    np.testing.assert_array_equal(statistics_in(read, "cell_weight"), array_statistics(weight))


def test_only_inputs_or_outputs_of_one_module_that_are_alike_become_one() -> None:
    one, two = np.ones(2), np.ones(3)
    tensors = {
        "cell_input_0": one,
        "cell_input_1": two,
        "cell_input_2": one,
        "cell_output_0": one,
        "other_input_0": one,
        "layer_1.weight": one,
        "layer_2.weight": one,
        "MSELoss_input_0": one,
        "MSELoss_input_1": one,
    }
    short = parse_index(shortened(index_of(tensors)).data, file="f")
    assert short.merged == {"cell_input_0": 2}
    assert set(tensors) - {row.name for row in short.shapes} == {"cell_input_2"}


def test_the_value_of_the_first_call_is_kept() -> None:
    tensors = {f"cell_output_{at}": np.full(2, at) for at in range(3)}
    short = parse_index(shortened(index_of(tensors, tuple(tensors))).data, file="f")
    assert short.locations == (TensorLocation("cell_output_0", 0, 10),)
    assert short.statistics is not None
    assert short.statistics.crc32c == (7,)


def test_inputs_of_modules_are_left_out_first_if_that_is_not_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    modules = {f"module{at}_input_0": np.ones(2) for at in range(70)}
    others = {f"weight_of_{at}": np.ones(2) for at in range(30)}
    tensors = {**modules, **others}
    index = index_of(tensors)
    monkeypatch.setattr(index_module, "MAX_INDEX_BYTES", len(index.encode()) // 3)
    short = shortened(index)
    assert short.num_left_out == 75
    assert {row.name for row in parse_index(short.data, file="f").shapes} == {*[*others][:25]}
