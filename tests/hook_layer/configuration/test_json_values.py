from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hook_layer.configuration.json_values import (
    as_flag,
    as_integer,
    as_number,
    as_text,
    as_texts,
    known_keys,
    split_at_commas,
)
from hook_layer.errors import HookConfigurationError

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=5,
)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a,b", ["a", "b"]),
        (" a , b c,", ["a", "b c"]),
        ("", []),
        (",", []),
        ("w{1,2},b", ["w{1,2}", "b"]),
        ("[a,b],(c,d)", ["[a,b]", "(c,d)"]),
        (r"a\,b,c", [r"a\,b", "c"]),
        (r"\[a,b", [r"\[a", "b"]),
        ("[(],b", ["[(]", "b"]),
        (r"[\]],b", [r"[\]]", "b"]),
        ("(a,b", ["(a", "b"]),
        ("a),b", ["a)", "b"]),
    ],
)
def test_texts_are_split_at_commas_that_separate(text: str, parts: list[str]) -> None:
    assert split_at_commas(text) == parts


@given(st.lists(st.from_regex(r"[a-z]{1,4}(\{[1-9],[0-9]{2}\}|\[a,b\]|\(x,y\))?", fullmatch=True)))
def test_what_was_joined_is_split_again(patterns: list[str]) -> None:
    assert split_at_commas(",".join(patterns)) == patterns


@pytest.mark.parametrize("value", [True, "True", "true", " TRUE ", 1, "1"])
def test_what_means_yes(value: object) -> None:
    assert as_flag("x", value) is True


@pytest.mark.parametrize("value", [False, "False", "false", 0, "0"])
def test_what_means_no(value: object) -> None:
    assert as_flag("x", value) is False


@pytest.mark.parametrize("value", [None, "", "yes?", 2, 1.0, [], {}, "None"])
def test_what_means_neither(value: object) -> None:
    with pytest.raises(HookConfigurationError, match="must be true or false"):
        as_flag("x", value)


@pytest.mark.parametrize("value", [10, "10", " 10 ", 10.0])
def test_integers(value: object) -> None:
    assert as_integer("x", value, minimum=10) == 10


@pytest.mark.parametrize(
    "value",
    [
        9,
        "9",
        10.5,
        "10.0",
        True,
        None,
        "",
        "ten",
        math.inf,
        math.nan,
        [],
        {},
        "1" * 5000,
    ],
)
def test_no_integers(value: object) -> None:
    with pytest.raises(HookConfigurationError, match=r"x=.* must be an integer of at least 10"):
        as_integer("x", value, minimum=10)


@given(ANYTHING)
def test_whatever_is_given_is_taken_or_refused_shortly(value: Any) -> None:
    for read in (as_flag, as_number, as_text, as_texts):
        try:
            read("name", value)
        except HookConfigurationError as error:
            assert str(error).startswith("name=")
            assert len(str(error)) < 1000
    number: object = None
    try:
        number = as_integer("name", value, minimum=-5)
    except HookConfigurationError:
        pass
    else:
        assert isinstance(number, int)


def test_an_unknown_key_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"P\.stepp=1 has an unknown key: did you mean 'steps'"):
        known_keys("P.", {"stepp": 1}, ("steps", "other"))
    assert known_keys("P.", {"steps": None, "other": 0}, ("steps", "other")) == {"other": 0}


def test_a_huge_value_gives_a_short_message() -> None:
    with pytest.raises(HookConfigurationError) as caught:
        known_keys("P.", {"k" * 100_000: ["v" * 100_000] * 1000}, ("steps",))
    assert len(str(caught.value)) < 2000
