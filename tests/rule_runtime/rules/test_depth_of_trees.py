from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rule_runtime.rules.tree_depth import deepest


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**30), max_size=60), st.randoms(use_true_random=False))
def test_the_depth_is_the_longest_way_to_a_root(choices: list[int], random: object) -> None:
    """Compared with the longest way up, of trees that grow by one node at a time."""
    parents: list[int | None] = [None]
    children: list[list[int]] = [[]]
    for choice in choices:
        parent = choice % (len(parents) + 1) - 1  # -1 begins another tree
        if parent >= 0 and len(children[parent]) == 2:
            continue
        if parent >= 0:
            children[parent].append(len(parents))
        parents.append(parent if parent >= 0 else None)
        children.append([])
    expected = 0
    for node in range(len(parents)):
        length, at = 0, parents[node]
        while at is not None:
            length, at = length + 1, parents[at]
        expected = max(expected, length)
    order = list(range(len(parents)))
    random.shuffle(order)  # type: ignore[attr-defined]
    names = [f"t-{node}" for node in order]
    yes, no = (
        [f"t-{children[node][side]}" if len(children[node]) > side else "nan" for node in order]
        for side in (0, 1)
    )
    assert deepest(names, yes, no) == expected


@pytest.mark.parametrize(
    ("names", "yes"),
    [
        ([], []),
        (["a"], ["a"]),
        (["a", "b"], ["b", "a"]),
    ],
)
def test_what_has_no_root_has_no_depth(names: list[str], yes: list[str]) -> None:
    assert deepest(names, yes) is None


def test_a_chain_of_many_nodes_takes_no_recursion() -> None:
    names = [str(node) for node in range(100_000)]
    assert deepest(names, [*names[1:], "nan"]) == 99_999
