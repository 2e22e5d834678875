"""What strings mean as parameters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rule_runtime.engine.constraints import Regex
from rule_runtime.engine.parameters import (
    Parameter,
    ParameterError,
    coerce,
    nearest,
    parameters_of,
)


@dataclass
class Declared:
    names: tuple[str, ...] = field(default_factory=tuple)
    regexes: Annotated[tuple[str, ...], Regex()] = ()
    number: float = 0.0
    count: int = 0
    maybe: int | None = None
    kind: Literal["any", "all"] = "any"
    sizes: tuple[float, ...] = ()
    mode: Literal["EVAL", "TRAIN"] | None = None
    odd: dict[str, int] = field(default_factory=dict)


PARAMETERS = {parameter.name: parameter for parameter in parameters_of(Declared)}


def coerced(name: str, value: object) -> Any:
    return coerce(PARAMETERS[name], value, owner="Declared")


def test_a_default_may_be_made_by_a_factory() -> None:
    assert PARAMETERS["names"].default == ()
    assert not PARAMETERS["names"].is_required


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a,b", ("a", "b")),
        (" a , ,b ", ("a", "b")),
        (r"a\,b,c", (r"a\,b", "c")),
        ("a{1,2},b", ("a{1,2}", "b")),
        ("[,;],(a,b),c", ("[,;]", "(a,b)", "c")),
        (r"\(a,b", (r"\(a", "b")),
        ("none", ()),
        ("", ()),
        (None, ()),
        (["a,b", "c"], ("a,b", "c")),
    ],
)
def test_regular_expressions_are_split_outside_brackets(text: object, parts: tuple[str]) -> None:
    assert coerced("regexes", text) == parts


@given(st.lists(st.text(st.characters(exclude_characters=",", codec="ascii")), max_size=4))
def test_lists_come_back_as_they_were_joined(names: list[str]) -> None:
    kept = tuple(name.strip() for name in names if name.strip())
    whole = ",".join(names)
    expected = () if whole.strip().casefold() in {"none", "null"} else kept
    assert coerced("names", whole) == expected


@given(st.floats(allow_nan=False))
def test_numbers_come_back_exactly(number: float) -> None:
    assert coerced("number", repr(number)) == number


@given(st.integers(-(2**53), 2**53))
def test_whole_numbers_may_look_like_others(number: int) -> None:
    for text in (str(number), f"{number}.0", float(number), number):
        assert coerced("count", text) == number


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("number", True),
        ("number", [1.0]),
        ("number", "NaN"),
        ("count", "1.5"),
        ("count", False),
        ("names", 7),
        ("names", b"x"),
        ("sizes", b"x"),
        ("count", np.bool_(True)),
        ("count", b"3"),
        ("number", np.float64("nan")),
        ("number", 10**400),
        ("kind", "none of them"),
        ("kind", 3),
        ("odd", "a"),
    ],
)
def test_what_is_of_another_type_is_refused(name: str, value: object) -> None:
    with pytest.raises(ParameterError, match=f"Declared: parameter {name} is"):
        coerced(name, value)


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("count", np.int64(3), int),
        ("count", np.float64(3), int),
        ("maybe", np.uint8(3), int),
        ("number", np.int64(3), float),
        ("number", np.float32(3), float),
    ],
)
def test_numbers_of_numpy_are_numbers(name: str, value: object, kind: type) -> None:
    assert coerced(name, value) == 3
    assert type(coerced(name, value)) is kind


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("mode", "FIT", "'FIT', but must be one of EVAL, TRAIN, or none"),
        ("names", 0.5, "0.5, but must be texts with commas between"),
        ("number", "nan", "'nan', but must be a number: not NaN"),
        ("maybe", "x", "'x', but must be a whole number, or none"),
    ],
)
def test_what_is_needed_is_said_plainly(name: str, value: object, message: str) -> None:
    with pytest.raises(ParameterError) as caught:
        coerced(name, value)
    assert str(caught.value) == f"Declared: parameter {name} is {message}"


@pytest.mark.parametrize("text", [None, "", "None", " null "])
def test_none_may_be_a_word(text: object) -> None:
    assert coerced("maybe", text) is None


def test_a_hint_names_what_is_valid() -> None:
    assert nearest("treshold", ["threshold", "patience"]) == "; did you mean 'threshold'?"
    assert nearest("x", ["b", "a"]) == "; valid are a, b"
    assert nearest("x", []) == "; there are none"


def test_a_parameter_without_default_is_required() -> None:
    @dataclass
    class Needy:
        needed: int

    (parameter,) = parameters_of(Needy)
    assert isinstance(parameter, Parameter)
    assert parameter.is_required
