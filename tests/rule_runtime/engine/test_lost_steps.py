"""Steps that could not be stored hold nothing up, and the verdict mentions them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from hook_layer.delivery.step_delivery import StepDelivery
from hook_layer.delivery.step_files import RunIdentity
from hook_layer.format.end_marker import EndMarker
from hook_layer.format.paths import END_MARKER
from hook_layer.storage.memory import MemoryStore
from rule_runtime import create_trial
from rule_runtime.cli.app import app
from rule_runtime.engine.outcome import RuleStatus, status_details
from rule_runtime.engine.progress import WorkerProgress
from rule_runtime.engine.reconciler import Reconciler
from rule_runtime.engine.registry import create_rule
from rule_runtime.engine.state import EvaluationState
from rule_runtime.trial.step_index import list_index_files, load_step_files
from tests.hook_layer.doubles import make_record

RULE = create_rule("ExplodingTensor", {})


def files_of(store: MemoryStore) -> list[str]:
    return [key for key, _ in list_index_files(store)]


@pytest.fixture
def delivery(request: pytest.FixtureRequest) -> StepDelivery:
    store = MemoryStore.from_uri(f"memory://lost-{request.node.name}")
    return StepDelivery(store, RunIdentity("RUN", "worker_0"))


def store_of(delivery: StepDelivery) -> MemoryStore:
    store = delivery._target
    assert isinstance(store, MemoryStore)
    return store


def test_a_step_behind_lost_ones_is_judged_while_the_job_runs(delivery: StepDelivery) -> None:
    store = store_of(delivery)
    state = EvaluationState.initial()
    for step in range(6):
        if step in {0, 2, 3}:
            continue
        delivery.write(make_record(step), step + 1)
        key = files_of(store)[-1]
        state = Reconciler(store, RULE, "RUN").advance(state, load_step_files(store, [key]))
        assert state.progress.fed_step == step
        state = EvaluationState.from_json(json.loads(json.dumps(state.to_json())))
    assert state.counts.evaluated == 3


def test_the_verdict_tells_how_many_steps_are_missing(delivery: StepDelivery) -> None:
    store = store_of(delivery)
    for step in range(6):
        if step in {0, 2, 3, 5}:
            continue
        delivery.write(make_record(step), step + 1)
    last = {"worker_0": 6}
    reconciler = Reconciler(store, RULE, "RUN")
    initial = EvaluationState.initial()
    state = reconciler.advance(initial, (), ended=True, last_sequences=last)
    assert (state.counts.evaluated, state.counts.missing) == (2, 4)
    assert state.status is RuleStatus.NO_ISSUES_FOUND
    assert "4 expected steps missing" in status_details("r", state)
    assert reconciler.advance(initial, (), ended=True).counts.missing == 3


def test_nothing_is_missing_in_a_complete_run(delivery: StepDelivery) -> None:
    store = store_of(delivery)
    for step in range(3):
        delivery.write(make_record(step), step + 1)
    for last in ({"worker_0": 3}, {}):
        state = Reconciler(store, RULE, "RUN").advance(
            EvaluationState.initial(), (), ended=True, last_sequences=last
        )
        assert state.counts.missing == 0
        assert "missing" not in status_details("r", state)


def test_the_command_line_shows_how_many_steps_are_missing(delivery: StepDelivery) -> None:
    store = store_of(delivery)
    delivery.write(make_record(0), 1)
    store.put(END_MARKER, EndMarker("RUN", {"worker_0": 3}).encode())
    result = CliRunner().invoke(
        app, ["evaluate", store.uri, "--rule", "ExplodingTensor", "--output", "json"]
    )
    (verdict,) = json.loads(result.stdout)
    assert verdict["Counts"]["missing"] == 2
    assert "2 expected steps missing" in verdict["StatusDetails"]


def test_a_trial_that_is_followed_passes_lost_steps(delivery: StepDelivery) -> None:
    trial = create_trial(store_of(delivery).uri)
    for step in range(6):
        if step in {0, 2, 3}:
            continue
        delivery.write(make_record(step), step + 1)
    assert trial.steps() == [1, 4, 5]


@pytest.mark.parametrize("seed", range(20))
def test_numbers_seen_and_skipped_in_any_order_are_those_of_a_set(seed: int) -> None:
    random = np.random.default_rng(seed)
    track, lost = WorkerProgress(), 0
    expected: set[int] = set()
    for _ in range(30):
        sequence = int(random.integers(1, 60))
        if sequence in expected:
            continue
        skipped = int(random.integers(0, min(sequence, 6)))
        before = set(range(sequence - skipped, sequence))
        lost += len(before - expected)
        expected |= before | {sequence}
        track.add(sequence, skipped)
        assert track.lost == lost
        assert {n for low, high in track.seen for n in range(low, high + 1)} == expected
        assert all(a[1] + 1 < b[0] for a, b in zip(track.seen, track.seen[1:], strict=False))


def test_a_claim_of_very_many_lost_steps_costs_nothing() -> None:
    track = WorkerProgress()
    track.add(1 << 60, (1 << 60) - 1)
    assert track.seen == [(1, 1 << 60)]
