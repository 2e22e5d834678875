"""Whatever becomes of events and evaluators, the verdict is that of one pass over the run.

A history is read from a list of bytes (`tape.py`): a job with one to three workers, which leave
steps out, fall silent, or write late; perhaps an interrupted run before it, or files of the
original client. Events are lost, doubled, delayed, reordered and put into batches; evaluators die
before or after each thing that they do, run out of time, and overtake each other; sweeps look at
what is active. In the end all that is still on its way arrives.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.lambdas.histories.tape import Tape
from tests.lambdas.histories.verdicts import check
from tests.lambdas.histories.world import World

NUM_HISTORIES = 500
NUM_CRAMPED_HISTORIES = 150
"""Each takes 25 ms. The mutant that is hardest to find needs 26: see test_mutations.py."""

TAPES = st.binary(min_size=150, max_size=500)
SETTINGS = settings(
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@settings(SETTINGS, max_examples=NUM_HISTORIES)
@given(TAPES)
def test_any_history_ends_in_the_verdict_of_one_pass_in_order(data: bytes) -> None:
    check(World(Tape(data)))


@settings(SETTINGS, max_examples=NUM_CRAMPED_HISTORIES)
@given(TAPES)
def check_cramped(data: bytes) -> None:
    check(World(Tape(data)))


def test_histories_in_which_little_fits_at_once_end_so_too(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("run_feed", "lost_files", "run_end"):
        monkeypatch.setattr(f"rule_runtime.engine.{module}.FILES_AT_ONCE", 3)
    monkeypatch.setattr("rule_runtime.engine.lost_files._NAMES_AT_ONCE", 5)
    monkeypatch.setattr("rule_runtime.engine.progress.MAX_PENDING", 6)
    check_cramped()
