"""One suite for the table in DynamoDB and the one in memory that other tests build on."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from lambdas.shared import clients
from lambdas.shared.state_table import (
    DynamoStateTable,
    MemoryTooLargeError,
    StateKey,
    StateTable,
    StoredState,
    VersionConflictError,
)
from rule_runtime.engine.outcome import Evidence, RuleStatus
from rule_runtime.engine.progress import WorkerProgress
from rule_runtime.engine.state import Counts, EvaluationState, Progress

KEY = StateKey("s3://tensors/mnist-7/", "01JD0000000000000000000001", "ExplodingTensor")
INITIAL = EvaluationState.initial()
EVIDENCE = Evidence(
    step=500,
    mode="TRAIN",
    worker="worker_0",
    tensor="gradient/Net_conv1.weight",
    measure="abs_mean",
    value=float("inf"),
    threshold=1e-7,
    sentence="gradient/Net_conv1.weight: too large",
    remedy="try something",
)
LATER = replace(
    INITIAL.with_status(RuleStatus.ISSUES_FOUND),
    progress=Progress(
        workers={"worker_0": WorkerProgress(seen=[(1, 4), (6, 9)], passed_step=4)},
        num_workers=2,
        fed_step=4,
    ),
    memory={"seen": [1.5, None, "läufe"], "best": {"loss": 0.25}},
    evidence=EVIDENCE,
    counts=Counts(evaluated=5, not_evaluated=1, last_reason="none saved"),
)


@pytest.fixture(params=["dynamodb", "memory"])
def table(request: pytest.FixtureRequest, memory_state_table: Callable[[], Any]) -> StateTable:
    if request.param == "memory":
        memory: StateTable = memory_state_table()
        return memory
    request.getfixturevalue("aws")
    return DynamoStateTable(clients.dynamodb(), "states")


def item() -> dict[str, Any]:
    key: dict[str, Any] = {"run": {"S": KEY.run}, "rule": {"S": KEY.rule}}
    found: dict[str, Any] = clients.dynamodb().get_item(TableName="states", Key=key)["Item"]
    return found


def created(table: StateTable) -> StoredState:
    return table.save(StoredState(KEY, INITIAL), INITIAL)


def test_nothing_is_stored_at_first(table: StateTable) -> None:
    assert table.load(KEY) is None


def test_what_is_saved_is_loaded(table: StateTable) -> None:
    first = created(table)
    assert first.version == 1
    assert table.load(KEY) == first
    second = table.save(first, LATER)
    assert second.version == 2
    assert second.state == LATER
    assert table.load(KEY) == second


@pytest.mark.parametrize("table", ["dynamodb"], indirect=True)
def test_attributes_of_a_later_version_are_ignored_and_stay(table: StateTable) -> None:
    stored = created(table)
    later = {"later": {"M": {"nested": {"L": []}}}}
    clients.dynamodb().put_item(TableName="states", Item={**item(), **later})
    assert table.load(KEY) == stored
    assert table.save(stored, LATER) == table.load(KEY)
    assert item()["later"] == later["later"]


def test_what_is_in_the_way_is_kept_and_taken_back(table: StateTable) -> None:
    stored = table.save(created(table), replace(LATER, blocked_by="no such parameter: läufe"))
    assert table.load(KEY) == stored
    assert stored.state.blocked_by == "no such parameter: läufe"
    stored = table.save(stored, LATER)
    assert table.load(KEY) == stored


def test_runs_and_rules_are_apart(table: StateTable) -> None:
    created(table)
    assert table.load(replace(KEY, run_id="")) is None
    assert table.load(replace(KEY, rule="Other")) is None
    assert table.load(replace(KEY, root_uri="s3://tensors/mnist-70/")) is None


def test_a_second_first_write_meets_the_first(table: StateTable) -> None:
    first = created(table)
    with pytest.raises(VersionConflictError) as caught:
        created(table)
    assert caught.value.current == first


def test_a_write_over_an_older_version_is_refused(table: StateTable) -> None:
    first = created(table)
    second = table.save(first, LATER)
    with pytest.raises(VersionConflictError) as caught:
        table.save(first, replace(LATER, ended=True))
    assert caught.value.current == second
    assert table.load(KEY) == second


def test_a_write_over_an_item_that_is_gone_is_refused(table: StateTable) -> None:
    with pytest.raises(VersionConflictError) as caught:
        table.save(StoredState(KEY, INITIAL, version=3), LATER)
    assert caught.value.current is None


def test_announcing_and_evaluating_do_not_get_into_each_others_way(table: StateTable) -> None:
    first = created(table)
    second = table.save(first, LATER)
    assert table.mark_announced(first).state.is_announced
    loaded = table.load(KEY)
    assert loaded is not None
    assert loaded.version == second.version
    assert (loaded.state.transition, loaded.state.announced_transition) == (2, 1)
    # Who loaded the state before it was announced does not take that back.
    third = table.save(second, replace(LATER, ended=True))
    loaded = table.load(KEY)
    assert loaded is not None
    assert loaded.state.announced_transition == 1
    table.mark_announced(third)
    table.mark_announced(first)
    loaded = table.load(KEY)
    assert loaded is not None
    assert loaded.state.announced_transition == 2, "the counter only ever rises"


def test_output_that_was_not_taken_in_can_be_noted(table: StateTable) -> None:
    stored = created(table)
    heard = replace(stored, updated_at_ms=stored.updated_at_ms + 60_000)
    assert table.save(heard, INITIAL).updated_at_ms == heard.updated_at_ms
    loaded = table.load(KEY)
    assert loaded is not None
    assert loaded.updated_at_ms == heard.updated_at_ms


@pytest.mark.usefixtures("aws")
class TestDynamoDB:
    def test_the_time_of_the_transition_stays(self) -> None:
        now = [1000.0]
        table = DynamoStateTable(clients.dynamodb(), "states", clock=lambda: now[0])
        stored = created(table)
        assert stored.status_changed_at_ms == 1_000_000
        now[0] = 2000.5
        stored = table.save(stored, replace(INITIAL, counts=Counts(evaluated=1)))
        assert stored.status_changed_at_ms == 1_000_000
        stored = table.save(stored, LATER)
        assert stored.status_changed_at_ms == 2_000_500
        now[0] = 3000.0
        table.mark_announced(stored)
        assert table.load(KEY) == replace(stored, state=LATER.announced())

    def test_who_has_not_ended_or_was_not_announced_is_active(self) -> None:
        table = DynamoStateTable(clients.dynamodb(), "states", clock=lambda: 1000.0)
        stored = created(table)
        assert item()["active"] == {"S": "1"}
        assert item()["expires_at"] == {"N": str(1000 + 90 * 24 * 3600)}
        found = table.save(table.mark_announced(stored), LATER)
        found = table.mark_announced(found)
        assert item()["active"] == {"S": "1"}, "the run goes on"
        ended = table.save(found, replace(LATER, ended=True))
        assert "active" not in item(), "the finding was announced before"
        assert ended.state.is_announced

    def test_a_verdict_is_active_until_it_is_announced(self) -> None:
        table = DynamoStateTable(clients.dynamodb(), "states")
        ended = table.save(created(table), replace(LATER, ended=True))
        assert item()["active"] == {"S": "1"}
        table.mark_announced(ended)
        assert "active" not in item()

    def test_a_late_word_about_an_earlier_version_leaves_the_next_one_active(self) -> None:
        table = DynamoStateTable(clients.dynamodb(), "states")
        error = replace(INITIAL, ended=True).with_status(RuleStatus.ERROR)
        ended = table.save(created(table), error)
        table.save(ended, replace(LATER, transition=3, ended=True))
        table.mark_announced(ended)
        assert item()["active"] == {"S": "1"}
        assert item()["announced_transition"] == {"N": "2"}

    def test_the_index_has_the_active_ones_longest_silent_first(self) -> None:
        now = [1000.0]
        table = DynamoStateTable(clients.dynamodb(), "states", clock=lambda: now[0])
        for second, run in ((1000.0, "b"), (2000.0, "a"), (3000.0, "c")):
            now[0] = second
            key = replace(KEY, run_id=run)
            stored = table.save(StoredState(key, INITIAL), INITIAL)
            if run == "a":
                table.mark_announced(table.save(stored, replace(LATER, ended=True)))
        items = clients.dynamodb().query(
            TableName="states",
            IndexName="active-updated_at",
            KeyConditionExpression="active = :active",
            ExpressionAttributeValues={":active": {"S": "1"}},
        )["Items"]
        assert [found["run"]["S"].rpartition("#")[2] for found in items] == ["b", "c"]
        assert set(items[0]) == {
            "active", "updated_at", "run", "rule", "status", "transition", "announced_transition",
            "ended",
        }  # fmt: skip

    def test_only_output_makes_a_run_less_silent(self) -> None:
        now = [1000.0]
        table = DynamoStateTable(clients.dynamodb(), "states", clock=lambda: now[0])
        stored = created(table)
        now[0] = 2000.0
        stored = table.save(stored, LATER)
        assert item()["updated_at"] == {"N": "2000000"}
        now[0] = 3000.0
        stored = table.save(stored, replace(LATER, blocked_by="no such parameter"))
        assert (stored.updated_at_ms, item()["updated_at"]) == (2_000_000, {"N": "2000000"})
        assert table.load(KEY) == stored

    def test_memory_is_compressed_and_bounded(self) -> None:
        table = DynamoStateTable(clients.dynamodb(), "states")
        first = created(table)
        repetitive = replace(LATER, memory={"values": [0.5] * 500_000})
        second = table.save(first, repetitive)
        noise = random.Random(0)
        incompressible = {"values": [noise.random() for _ in range(50_000)]}
        with pytest.raises(MemoryTooLargeError, match=r"ExplodingTensor takes \d+ bytes"):
            table.save(second, replace(LATER, memory=incompressible))
        loaded = table.load(KEY)
        assert loaded is not None
        assert loaded.state.memory == repetitive.memory
