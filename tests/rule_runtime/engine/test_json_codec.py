"""Dataclasses as JSON: what is written is read back, and nothing else is."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, NamedTuple

import pytest

from rule_runtime.engine.json_codec import JsonError, JsonRecord
from rule_runtime.engine.state import EvaluationState
from rule_runtime.testing.rule_evaluations import as_text
from tools.golden_memories import GOLDEN


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Row(NamedTuple):
    step: int
    last: int | None
    note: str = ""


@dataclass(frozen=True)
class Inner(JsonRecord):
    share: float
    flag: bool = False


@dataclass(frozen=True, kw_only=True)
class Outer(JsonRecord):
    name: str = field(metadata={"json": "Name"})
    colour: Colour = Colour.RED
    rows: tuple[Row, ...] = ()
    inner: Inner | None = None
    inners: dict[str, Inner] = field(default_factory=dict)
    pending: dict[int, int] = field(default_factory=dict)
    pairs: set[tuple[int, str]] = field(default_factory=set)
    memory: Mapping[str, Any] = field(default_factory=dict)


FULL = Outer(
    name="läufe",
    colour=Colour.BLUE,
    rows=(Row(1, None), Row(2, 3, "x")),
    inner=Inner(math.inf, flag=True),
    inners={"a": Inner(-0.5)},
    pending={7: 1, 3: 2},
    pairs={(2, "b"), (1, "a")},
    memory={"z": [math.inf, None, {"a": 1}]},
)


@pytest.mark.parametrize("record", [Outer(name=""), replace(FULL, memory={}), FULL])
def test_what_is_written_is_read_back(record: Outer) -> None:
    stored = json.loads(json.dumps(record.to_json()))
    again = Outer.from_json(stored)
    assert again == record


def test_the_layout() -> None:
    assert replace(FULL, memory={}).to_json() == {
        "Name": "läufe",
        "colour": "blue",
        "rows": [[1, None, ""], [2, 3, "x"]],
        "inner": {"share": "Infinity", "flag": True},
        "inners": {"a": {"share": -0.5, "flag": False}},
        "pending": [[3, 2], [7, 1]],
        "pairs": [[1, "a"], [2, "b"]],
        "memory": {},
    }
    assert "inner" not in Outer(name="x").to_json()


def test_members_may_be_missing_or_unknown() -> None:
    assert Outer.from_json({"Name": "x", "of a later version": 1}) == Outer(name="x")
    assert Outer.from_json({"Name": "x", "colour": None}) == Outer(name="x")
    rows = [[1, None], [2, 3, "x", "of a later version"]]
    assert Outer.from_json({"Name": "x", "rows": rows}).rows == FULL.rows


def test_states_of_later_versions_are_read() -> None:
    for line in json.loads(GOLDEN.read_text(encoding="utf-8")):
        later = _extended(line["state"])
        later["memory"] = line["state"]["memory"]
        read, state = (EvaluationState.from_json(each) for each in (later, line["state"]))
        assert as_text(read) == as_text(state)


def _extended(value: Any) -> Any:
    """Return JSON with a further member in each object."""
    if isinstance(value, list):
        return [_extended(each) for each in value]
    if not isinstance(value, dict) or "worker_0" in value:
        return {k: _extended(v) for k, v in value.items()} if isinstance(value, dict) else value
    return {**{k: _extended(v) for k, v in value.items()}, "of a later version": [1]}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, r"Outer\.Name: a value expected, None found"),
        ({"name": "x"}, r"Outer\.Name: a value expected"),
        ({"Name": 3}, r"Outer\.Name: text expected, 3 found"),
        ({"Name": "x", "colour": "green"}, r"Outer\.colour: red or blue expected, 'green' found"),
        ({"Name": "x", "colour": []}, r"Outer\.colour: red or blue expected"),
        ({"Name": "x", "rows": {}}, r"Outer\.rows: a list expected, {} found"),
        ({"Name": "x", "rows": [[1]]}, r"Outer\.rows\[0\]: a list of 2 expected"),
        ({"Name": "x", "rows": [[None, 1, ""]]}, r"Outer\.rows\[0\]\[0\]: a whole number expected"),
        ({"Name": "x", "rows": [[True, 1, ""]]}, "a whole number expected, True found"),
        ({"Name": "x", "rows": [[1.0, 1, ""]]}, r"a whole number expected, 1\.0 found"),
        ({"Name": "x", "inner": [1]}, r"Outer\.inner: an object expected"),
        ({"Name": "x", "inner": {"share": "1"}}, r"Outer\.inner\.share: a number expected"),
        ({"Name": "x", "inner": {"share": 10**400}}, r"Outer\.inner\.share: a number expected"),
        ({"Name": "x", "inner": {"share": 1, "flag": 0}}, "true or false expected, 0 found"),
        ({"Name": "x", "inners": {"a": None}}, r"Outer\.inners\.a: an object expected"),
        ({"Name": "x", "pending": [[1]]}, r"Outer\.pending\[0\]: a list of 2 expected"),
        ({"Name": "x", "pending": {"1": 2}}, r"Outer\.pending: a list expected"),
        ({"Name": "x", "memory": "x" * 500}, r"Outer\.memory: an object expected, 'xxx"),
        ([], "Outer: an object expected"),
    ],
)
def test_other_json_is_refused_with_the_members_name(data: Any, message: str) -> None:
    with pytest.raises(JsonError, match=message) as caught:
        Outer.from_json(data)
    assert len(str(caught.value)) < 120


def test_a_state_of_the_first_layout_is_read() -> None:
    state = EvaluationState.from_json(
        {
            "status": "InProgress",
            "progress": {
                "workers": {
                    "worker_0": {"seen": [[1, 4], [6, 6]], "step": 4, "pending": [[6, 6]]},
                    "worker_1": {"seen": [], "step": -1, "forgotten": True, "unsequenced": 2},
                },
                "num_workers": None,
                "fed_step": 3,
                "late": 0,
                "replayed": 0,
                "unreadable": [[5, "worker_0"]],
                "waiting": [6, 1000.5, True],
                "scan": [3, None, False],
                "finishing": {"last_sequences": {"worker_0": 9}, "after": None, "shown": {}},
                "replaying": [2, True],
            },
            "memory": {"seen": 3},
            "evidence": None,
            "counts": {
                "evaluated": 3,
                "not_evaluated": 1,
                "last_reason": "x",
                "reasons": [["x", "", 1]],
            },
            "transition": 1,
            "announced_transition": 1,
            "ended": False,
            "blocked_by": None,
            "memory_version": 1,
        }
    )
    progress = state.progress
    assert progress.workers["worker_0"].passed_step == 4
    assert progress.workers["worker_0"].pending == {6: 6}
    assert progress.unreadable == {(5, "worker_0")}
    assert (progress.waiting, progress.scan) == ((6, 1000.5, True), (3, None, False))
    assert progress.finishing is not None
    assert progress.finishing.last_sequences == {"worker_0": 9}
    assert progress.replaying == (2, True)
    assert state.counts.main_reason == "x"
