"""Values on their way through JSON come back as what they were, or are refused."""

from __future__ import annotations

import json
import math
import re
from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hook_layer.format.modes import ModeKeys
from rule_runtime.custom_rules.json_values import UnkeepableError, kept, restored

_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(max_size=20)
    | st.complex_numbers(allow_nan=False)
    | st.sampled_from(ModeKeys)
)
_HASHABLE = st.recursive(
    _LEAVES, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=4
)
_VALUES = st.recursive(
    _HASHABLE,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(_HASHABLE, inner, max_size=4)
        | st.dictionaries(_HASHABLE, inner, max_size=3).map(OrderedDict)
        | st.sets(_HASHABLE, max_size=4)
        | st.lists(inner, max_size=4).map(lambda items: deque(items, maxlen=4))
        | st.lists(_HASHABLE, max_size=4).map(Counter)
        | st.dictionaries(st.text(), inner, max_size=3).map(lambda d: defaultdict(list, d))
    ),
    max_leaves=12,
)


def through_json(value: Any) -> Any:
    return restored(json.loads(json.dumps(kept(value))))


def shape_of(value: Any) -> Any:
    """Return the types in a value, for 1 == 1.0 == True."""
    if isinstance(value, dict):
        return type(value), [(shape_of(k), shape_of(v)) for k, v in value.items()]
    if isinstance(value, (list, tuple, deque)):
        return type(value), [shape_of(item) for item in value]
    return type(value)


@given(_VALUES)
def test_every_value_comes_back(value: Any) -> None:
    again = through_json(value)
    assert again == value
    assert shape_of(again) == shape_of(value)
    if isinstance(value, deque):
        assert again.maxlen == value.maxlen
    if isinstance(value, defaultdict):
        assert again.default_factory is value.default_factory


@given(
    hnp.arrays(
        hnp.scalar_dtypes().filter(lambda dtype: dtype.kind in "biufcSUMm"),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3),
    )
)
def test_every_array_comes_back(array: np.ndarray[Any, Any]) -> None:
    again = through_json(array)
    assert (again.dtype, again.shape, again.tobytes()) == (
        *(array.dtype, array.shape, array.tobytes()),
    )
    assert again.flags.writeable
    if array.size:
        number = array.reshape(-1)[0]
        same = through_json(number)
        assert type(same) is type(number)
        assert np.array(same).tobytes() == np.array(number).tobytes()


def test_what_is_no_number_comes_back() -> None:
    assert math.isnan(through_json([math.nan])[0])
    assert through_json((math.inf, -math.inf)) == (math.inf, -math.inf)
    assert through_json(re.compile("^a", re.IGNORECASE)) == re.compile("^a", re.IGNORECASE)
    assert through_json(defaultdict(None, a=1)).default_factory is None


def test_sets_are_kept_in_one_order() -> None:
    names = [f"name{n}" for n in range(50)]
    other: set[str] = set()
    for name in reversed(names):
        other.add(name)
    assert kept(set(names)) == kept(other) == ["set", sorted(names, key=repr)]


class Named(tuple[Any, ...]):
    __slots__ = ()


@pytest.mark.parametrize(
    ("value", "reported"),
    [
        (object(), "a object"),
        (Named((1, 2)), "a Named"),
        (np.array([object()]), "an array of object"),
        (np.zeros(1, dtype=[("a", int)]), "an array of"),
        (np.zeros(65537, dtype=bool), "an array of 65537 bytes, of 65536"),
        (np.ma.masked_array([1], mask=[True]), "a MaskedArray"),
        (defaultdict(lambda: 1), "a defaultdict whose factory"),
        (lambda: 1, "a function"),
        (iter([]), "a list_iterator"),
    ],
)
def test_what_cannot_be_kept_is_refused(value: Any, reported: str) -> None:
    for one in (value, [value], {"a": (value,)}):
        with pytest.raises(UnkeepableError, match=re.escape(reported)):
            kept(one)


def test_a_value_in_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(UnkeepableError, match="in itself"):
        kept(value)
