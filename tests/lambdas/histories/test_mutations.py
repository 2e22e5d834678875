"""The histories find out when one of the things is missing that keep a verdict right."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from rule_runtime.engine.progress import Progress
from rule_runtime.engine.run_end import RunEnd
from tests.lambdas.histories.mutants import TableWithoutCounter, UnconditionalTable
from tests.lambdas.histories.tape import Tape
from tests.lambdas.histories.verdicts import check
from tests.lambdas.histories.world import World

MOST = 100
"""Histories in which a mutant has to be found."""


def tape_of(seed: int) -> Tape:
    chance = random.Random(seed)
    return Tape(chance.randbytes(chance.randrange(150, 500)))


def num_histories_until_found(**world: Any) -> int | None:
    """Return how many histories it took until one did not end as it has to."""
    for seed in range(MOST):
        try:
            check(World(tape_of(seed), **world))
        except AssertionError:
            return seed + 1
    return None


def without_version_condition(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    return {"make_table": UnconditionalTable}


def without_announcing_counter(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    return {"make_table": TableWithoutCounter}


def without_sweep(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    return {"sweeps": False}


def without_replay(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(RunEnd, "_needs_replay", False)
    return {}


def without_giving_up(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(Progress, "is_overdue", lambda *_: False)
    return {}


MUTATIONS = [
    without_version_condition,
    without_announcing_counter,
    without_sweep,
    without_replay,
    without_giving_up,
]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_a_mutant_is_found(
    mutation: Callable[[pytest.MonkeyPatch], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert num_histories_until_found(**mutation(monkeypatch)) is not None


def test_the_same_histories_are_full_of_mishaps_and_end_well_as_things_are() -> None:
    seen: Counter[str] = Counter()
    for seed in range(MOST):
        world = World(tape_of(seed))
        check(world)
        seen.update({name for name, count in world.seen.items() if count})
    mishaps = {
        "event lost", "event doubled", "crash", "overtaken", "conflict", "continued", "given up",
        "replayed", "storage away",
    }  # fmt: skip
    assert min(seen[mishap] for mishap in mishaps) >= MOST / 10, seen
