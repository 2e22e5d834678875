from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rule_runtime.configuration.collection_config import CollectionConfig
from rule_runtime.configuration.merging import merged

MODES = ("", "train.", "eval.")


def together(*parameters: dict[str, str]) -> dict[str, str]:
    (config,) = merged(CollectionConfig("c", given) for given in parameters)
    return dict(config.parameters)


def test_each_collection_comes_once_in_the_order_of_names() -> None:
    given = [CollectionConfig("b"), CollectionConfig("a", {"x": "1"}), CollectionConfig("b")]
    assert merged(given) == (CollectionConfig("a", {"x": "1"}), CollectionConfig("b"))
    assert merged([]) == ()


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ({"save_interval": "500"}, {"save_interval": "10"}, {"save_interval": "10"}),
        ({"save_interval": "500"}, {}, {"save_interval": "500"}),
        (
            {"save_interval": "10"},
            {"train.save_interval": "100", "eval.save_interval": "1"},
            {"save_interval": "10", "train.save_interval": "10", "eval.save_interval": "1"},
        ),
        ({"start_step": "10"}, {"start_step": "20"}, {"start_step": "10"}),
        ({"start_step": "10"}, {}, {}),
        ({"end_step": "10"}, {"end_step": "20"}, {"end_step": "20"}),
        ({"end_step": "10"}, {}, {}),
        ({"save_steps": "0,5"}, {"save_steps": "5,2"}, {"save_steps": "0,2,5"}),
        ({"save_steps": "0,20"}, {"save_interval": "10"}, {"save_interval": "10"}),
        ({"include_regex": "b"}, {"include_regex": "a"}, {"include_regex": "a|b"}),
        ({"include_regex": "a"}, {"include_regex": "a"}, {"include_regex": "a"}),
        ({"save_raw_tensor": "False"}, {"save_raw_tensor": "True"}, {"save_raw_tensor": "True"}),
        ({"save_raw_tensor": "False"}, {}, {"save_raw_tensor": "False"}),
        ({"reductions": "mean"}, {"reductions": "l2"}, {"reductions": "l2,mean"}),
        ({"tensors": "x"}, {"tensors": "x"}, {"tensors": "x"}),
        ({"raw_max_elements": "9"}, {"raw_max_elements": "10"}, {"raw_max_elements": "10"}),
        (
            {"raw_max_elements": "9"},
            {"save_interval": "10"},
            {"raw_max_elements": "9", "save_interval": "10"},
        ),
        ({"raw_max_elements": "9"}, {"save_raw_tensor": "True"}, {"save_raw_tensor": "True"}),
        (
            {"raw_max_elements": "9", "save_raw_tensor": "True"},
            {"save_raw_tensor": "False"},
            {"raw_max_elements": "9", "save_raw_tensor": "True"},
        ),
    ],
)
def test_what_satisfies_both(
    one: dict[str, str], other: dict[str, str], expected: dict[str, str]
) -> None:
    assert together(one, other) == together(other, one) == expected


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        ({"tensors": "x"}, {"tensors": "y"}, "collection c: tensors is asked for as x and as y"),
        (
            {"save_steps": "0,5"},
            {"save_interval": "10"},
            "collection c: save_steps=0,5 and save_interval=10 are both asked for",
        ),
        (
            {"save_steps": "0"},
            {"save_interval": "10", "start_step": "5"},
            "collection c: save_steps=0 and save_interval=10 are both asked for",
        ),
        ({"raw_max_elements": "1e6"}, {}, "collection c: raw_max_elements='1e6' is no number"),
        (
            {"train.save_steps": "5"},
            {"save_interval": "10"},
            "train.save_steps=5 and train.save_interval=10",
        ),
    ],
)
def test_what_cannot_be_had_together(
    one: dict[str, str], other: dict[str, str], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        together(one, other)


INTERVALS = st.dictionaries(
    st.sampled_from([f"{mode}save_interval" for mode in MODES]), st.integers(1, 999).map(str)
)


@given(st.lists(INTERVALS, min_size=1, max_size=4))
def test_the_interval_of_each_mode_is_as_small_as_anybody_asks(given: list[dict]) -> None:
    result = together(*given)
    for mode in MODES:
        asked = [
            int(parameters.get(f"{mode}save_interval", parameters.get("save_interval", 10**6)))
            for parameters in given
        ]
        of_mode = result.get(f"{mode}save_interval", result.get("save_interval", 10**6))
        assert int(of_mode) <= min(asked)
    assert together(*given, *given) == result
    assert together(*reversed(given)) == result
