from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hook_layer.configuration.hook_json import load_hook_configuration
from hook_layer.configuration.save_config import SaveConfigMode
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
            {"save_interval": "10", "eval.save_interval": "1"},
        ),
        ({"start_step": "10"}, {"start_step": "20"}, {"start_step": "10"}),
        ({"start_step": "10"}, {}, {}),
        ({"end_step": "10"}, {"end_step": "20"}, {"end_step": "20"}),
        ({"end_step": "10"}, {}, {}),
        ({"save_steps": "0,5"}, {"save_steps": "5,2"}, {"save_steps": "0,2,5"}),
        ({"save_steps": "0,20"}, {"save_interval": "10"}, {"save_interval": "10"}),
        ({"save_steps": "1, 2,"}, {"save_steps": "3"}, {"save_steps": "1,2,3"}),
        (
            {"save_steps": "1,2,3"},
            {"save_interval": "500"},
            {"save_steps": "1,2,3", "save_interval": "500"},
        ),
        (
            {"save_steps": "0"},
            {"save_interval": "10", "start_step": "5"},
            {"save_interval": "10"},
        ),
        (
            {"save_steps": "0", "save_interval": "20"},
            {"save_interval": "10", "start_step": "5"},
            {"save_interval": "10"},
        ),
        (
            {"save_steps": "1", "train.save_interval": "7"},
            {"save_interval": "10", "start_step": "50"},
            {"save_steps": "1", "save_interval": "10", "train.save_interval": "7"},
        ),
        (
            {"save_steps": "0", "end_step": "5"},
            {"save_steps": "7", "end_step": "9"},
            {"save_steps": "0,7", "end_step": "9"},
        ),
        (
            {"train.save_steps": "5"},
            {"save_interval": "10"},
            {"save_interval": "10", "train.save_steps": "5"},
        ),
        ({"include_regex": "b"}, {"include_regex": "a"}, {"include_regex": "a,b"}),
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
        (
            {"tensors": "x"},
            {"tensors": "y"},
            "collection c: rules request different values of tensors: x and y",
        ),
        ({"raw_max_elements": "1e6"}, {}, "collection c: raw_max_elements='1e6' must be a number"),
        ({"save_interval": "x"}, {}, "collection c: save_interval='x' must be a whole number"),
        ({"start_step": ""}, {}, "collection c: start_step='' must be a whole number"),
        (
            {"save_interval": "0"},
            {"save_steps": "1"},
            "save_interval='0' must be a whole number of at least 1",
        ),
        (
            {"save_steps": "1,-2"},
            {},
            "save_steps='1,-2' must be a list of whole numbers of at least 0",
        ),
        (
            {"save_steps": "1;2"},
            {},
            "collection c: save_steps='1;2' must be a list of whole numbers",
        ),
        (
            {"train.end_step": "1.5"},
            {"end_step": "3"},
            "collection c: train.end_step='1.5' must be a whole number",
        ),
    ],
)
def test_what_cannot_be_had_together(
    one: dict[str, str], other: dict[str, str], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        together(one, other)


@pytest.mark.parametrize("pattern", ["(?i)tanh", r"w{2,3}\.bias", "[a,b]_output", "(x|y),z"])
def test_the_hook_reads_joined_regexes_as_it_reads_each(pattern: str, tmp_path: Path) -> None:
    asked = ["(?i)relu", pattern]
    joined = together(*({"include_regex": each} for each in asked))

    def read(text: str) -> set[str]:
        member = {"CollectionName": "c", "CollectionParameters": {"include_regex": text}}
        file = tmp_path / "hook.json"
        file.write_text(json.dumps({"CollectionConfigurations": [member]}), encoding="utf-8")
        (collection,) = load_hook_configuration(file, {}).collections
        return set(collection.include_regex)

    assert read(joined["include_regex"]) == read(asked[0]) | read(asked[1])


@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=3),
    st.integers(1, 20),
    st.integers(0, 20) | st.none(),
)
def test_the_hook_saves_each_step_that_a_list_or_an_interval_asks_for(
    listed: list[int], interval: int, start: int | None
) -> None:
    first = {} if start is None else {"start_step": str(start)}
    result = together(
        {"save_steps": ",".join(map(str, listed))}, {"save_interval": str(interval), **first}
    )
    config = SaveConfigMode(
        int(result["save_interval"]),
        result.get("start_step"),
        result.get("end_step"),
        [int(step) for step in result.get("save_steps", "").split(",") if step],
    )
    asked = {*listed, *range(-(-(start or 0) // interval) * interval, 60, interval)}
    assert all(config.should_save_step(step) for step in asked)


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


def test_a_mode_that_is_none_is_kept_for_the_hook_to_refuse() -> None:
    given = CollectionConfig("losses", {"evel.save_interval": "1"})
    assert merged([given, given]) == (given,)
