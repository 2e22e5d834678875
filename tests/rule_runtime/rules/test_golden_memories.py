"""A release continues what the last one remembered of a run, and the last one what this one did."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from rule_runtime.engine.reconciler import Reconciler
from rule_runtime.engine.state import MEMORY_VERSION, EvaluationState
from rule_runtime.testing.rule_evaluations import assert_same_verdict, states_file_by_file
from rule_runtime.trial.step_index import load_step_files
from tools.golden_memories import GOLDEN, RULES, contract_of, run_of

STATES: list[dict[str, Any]] = json.loads(GOLDEN.read_text(encoding="utf-8"))
CHANGED = (
    "the memory has changed: increase MEMORY_VERSION, or write python -m tools.golden_memories"
)


def test_all_rules_have_memories() -> None:
    assert {(each["rule"], each["run"]) for each in STATES} == {
        (rule, run) for rule in RULES for run in ("healthy", "sick")
    }, "run python -m tools.golden_memories"


@pytest.mark.parametrize("golden", STATES, ids=lambda each: f"{each['rule']}-{each['run']}")
def test_a_memory_is_continued_forward_and_back(golden: dict[str, Any]) -> None:
    contract, state = contract_of(golden["rule"]), EvaluationState.from_json(golden["state"])
    run, read = run_of(contract, golden["run"]), golden["files"]
    states = states_file_by_file(run, contract.make_rule)
    reconciler = Reconciler(run.store, contract.make_rule(), run.run)
    rest = load_step_files(run.store, run.keys[read:])
    assert_same_verdict(reconciler.advance(state, rest, ended=True), states[-1])
    # The last release reads the same memory, or starts over at another version.
    if state.memory_version == MEMORY_VERSION:
        one, other = (dict(_leaves(each.memory)) for each in (state, states[read]))
        assert one.keys() == other.keys(), CHANGED
        assert not [path for path in one if not _is_same(one[path], other[path])], CHANGED


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if path.endswith("/numbers"):  # of `SeriesMemory`; their sums differ between processors
        value = np.frombuffer(base64.b64decode(value), "<f8").tolist()
    if isinstance(value, (dict, list)):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, each in pairs:
            yield from _leaves(each, f"{path}/{key}")
    else:
        yield path, value


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two values are equal, except for rounding of sums."""
    if isinstance(one, float) and isinstance(other, float):
        return bool(np.isclose(one, other, rtol=1e-6, equal_nan=True))
    return type(one) is type(other) and one == other
