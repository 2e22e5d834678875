from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from rule_runtime.facts.step_history import StepHistory

names = st.sampled_from(["a", "b", "c"])


@given(st.lists(st.sets(names, min_size=1), max_size=30), st.integers(1, 4))
@settings(max_examples=200, deadline=None)
def test_the_last_steps_of_every_tensor_are_remembered(
    steps: list[set[str]], num_steps: int
) -> None:
    history = StepHistory((), num_steps=num_steps)
    for step, tensors in enumerate(steps):
        history.add(step, [(name, "worker_0") for name in tensors])
        history = StepHistory(json.loads(json.dumps(history.to_json())), num_steps=num_steps)
    remembered = history.newest_first()
    assert remembered == sorted(set(remembered), reverse=True)
    for name in ("a", "b", "c"):
        with_it = [step for step, tensors in enumerate(steps) if name in tensors]
        assert set(with_it[-num_steps:]) <= set(remembered)


def test_of_many_kinds_the_one_not_seen_for_longest_is_forgotten() -> None:
    history = StepHistory((), num_steps=2)
    for step in range(100):
        kind = "always" if step % 3 == 0 else f"t{step}"
        history.add(step, [(kind, "worker_0")])
    remembered = history.newest_first()
    assert len(history.to_json()) == 16
    assert {99, 96} <= set(remembered)
    assert 94 in remembered
    assert 1 not in remembered


def test_names_and_workers_are_kept_apart_and_their_order_does_not_matter() -> None:
    one, other = StepHistory((), num_steps=1), StepHistory((), num_steps=1)
    one.add(0, [("a", "b"), ("c", "d")])
    other.add(0, [("c", "d"), ("a", "b")])
    assert one.to_json() == other.to_json()
    other = StepHistory((), num_steps=1)
    other.add(0, [("a", "d"), ("c", "b")])
    assert one.to_json() != other.to_json()
