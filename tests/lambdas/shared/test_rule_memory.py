"""Memories that are too large for an item: where they are, and whom one believes about them."""

from __future__ import annotations

import hashlib
import random
import zlib
from dataclasses import replace
from typing import Any

import pytest

from hook_layer.storage.base import StorageError
from hook_layer.storage.memory import MemoryStore
from lambdas.shared import clients
from lambdas.shared.rule_memory import DamagedMemoryError, RuleMemories
from lambdas.shared.state_item import MAX_MEMORY_BYTES, decompressed_memory
from lambdas.shared.state_table import (
    DynamoStateTable,
    MemoryLostError,
    MemoryTooLargeError,
    StateKey,
    StoredState,
    VersionConflictError,
)
from rule_runtime.engine.outcome import RuleStatus
from rule_runtime.engine.progress import WorkerProgress
from rule_runtime.engine.state import Counts, EvaluationState, Progress

KEY = StateKey("s3://tensors/mnist-7/", "01JD0000000000000000000001", "ExplodingTensor")
INITIAL = EvaluationState.initial()


def memory(seed: int = 0, size: int = 20_000) -> dict[str, Any]:
    """Return a memory that hardly compresses."""
    noise = random.Random(seed)
    return {"values": [noise.random() for _ in range(size)]}


LARGE = replace(
    INITIAL,
    memory=memory(),
    progress=Progress(workers={"worker_0": WorkerProgress(seen=[(1, 4)], passed_step=3)}),
    counts=Counts(evaluated=4),
)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def table(aws: None, store: MemoryStore) -> DynamoStateTable:
    return DynamoStateTable(clients.dynamodb(), "states", memories=RuleMemories(lambda _: store))


def created(table: DynamoStateTable) -> StoredState:
    return table.save(StoredState(KEY, INITIAL), INITIAL)


def item() -> dict[str, Any]:
    (found,) = clients.dynamodb().scan(TableName="states")["Items"]
    return found


def names(store: MemoryStore) -> list[str]:
    return list(store.list())


def test_a_small_memory_stays_in_the_item(table: DynamoStateTable, store: MemoryStore) -> None:
    table.save(created(table), replace(LARGE, memory=memory(size=100)))
    assert names(store) == []
    assert "memory" in item()
    assert "memory_object" not in item()


def test_a_large_one_is_an_object_of_its_contents_name(
    table: DynamoStateTable, store: MemoryStore
) -> None:
    saved = table.save(created(table), LARGE)
    (name,) = names(store)
    assert name == item()["memory_object"]["S"] == saved.memory_object
    assert name.startswith("_stepwatch/memory/")
    assert hashlib.sha256(store.get(name)).hexdigest() in name
    assert "memory" not in item()
    assert table.load(KEY) == saved
    assert saved.state == LARGE


def test_the_earlier_object_goes_when_the_next_is_saved(
    table: DynamoStateTable, store: MemoryStore
) -> None:
    first = table.save(created(table), LARGE)
    second = table.save(first, replace(LARGE, memory=memory(1)))
    assert names(store) == [second.memory_object]
    assert second.memory_object != first.memory_object
    table.save(second, replace(LARGE, memory={}))
    assert names(store) == []
    assert "memory_object" not in item()


def test_an_unchanged_memory_is_not_written_again(
    table: DynamoStateTable, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = table.save(created(table), LARGE)
    monkeypatch.setattr(store, "put", None)
    second = table.save(first, replace(LARGE, counts=Counts(evaluated=5)))
    assert second.memory_object == first.memory_object
    assert table.load(KEY) == second


def test_equal_memories_of_two_evaluations_share_nothing(
    table: DynamoStateTable, store: MemoryStore
) -> None:
    first = table.save(created(table), LARGE)
    key = replace(KEY, rule="Other")
    other = table.save(table.save(StoredState(key, INITIAL), INITIAL), LARGE)
    table.save(other, replace(LARGE, memory={}))
    assert names(store) == [first.memory_object]
    assert table.load(KEY) == first


def test_who_loses_the_race_leaves_no_object(table: DynamoStateTable, store: MemoryStore) -> None:
    first = created(table)
    winner = table.save(first, LARGE)
    with pytest.raises(VersionConflictError) as caught:
        table.save(first, replace(LARGE, memory=memory(1)))
    assert caught.value.current == winner, "with its memory"
    assert names(store) == [winner.memory_object]


def test_two_that_write_the_same_keep_its_object(
    table: DynamoStateTable, store: MemoryStore
) -> None:
    first = created(table)
    winner = table.save(first, LARGE)
    with pytest.raises(VersionConflictError):
        table.save(first, LARGE)
    assert table.load(KEY) == winner


def test_the_object_is_there_before_the_item_names_it(
    table: DynamoStateTable, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = created(table)

    def fail(*_: Any) -> None:
        raise StorageError("slow down")

    with monkeypatch.context() as broken:
        broken.setattr(store, "put", fail)
        with pytest.raises(StorageError):
            table.save(first, LARGE)
    assert table.load(KEY) == first
    assert table.save(first, LARGE).state == LARGE


def test_an_object_that_cannot_be_removed_is_no_failure(
    table: DynamoStateTable, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = table.save(created(table), LARGE)

    def fail(*_: Any) -> None:
        raise StorageError("access denied")

    monkeypatch.setattr(store, "delete", fail)
    second = table.save(first, replace(LARGE, memory=memory(1)))
    assert len(names(store)) == 2
    assert table.load(KEY) == second


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"[]",
        zlib.compress(b'{"values": []}'),
        zlib.compress(b" " * 100_000_000),
        b"x" * (MAX_MEMORY_BYTES + 10),
    ],
    ids=["gone", "empty", "plain", "another", "bomb", "huge"],
)
def test_what_somebody_else_left_there_is_refused(
    table: DynamoStateTable, store: MemoryStore, content: bytes | None
) -> None:
    found = replace(LARGE, evidence=None).with_status(RuleStatus.ERROR)
    saved = table.save(created(table), found)
    if content is None:
        store.delete(saved.memory_object)
    else:
        store.put(saved.memory_object, content)
    with pytest.raises(MemoryLostError, match="ExplodingTensor") as caught:
        table.load(KEY)
    restart = caught.value.restart
    assert restart.state.status is RuleStatus.ERROR
    assert (restart.state.memory, restart.state.progress) == ({}, Progress())
    again = table.save(restart, LARGE)
    assert table.load(KEY) == again, "evaluated from the beginning, and saved"
    assert again.memory_object in names(store)


def test_a_reader_that_meets_the_next_write_reads_that(
    table: DynamoStateTable, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = table.save(created(table), LARGE)
    saved = []
    get = store.get

    def meet_a_writer(*arguments: Any) -> bytes:
        if not saved:
            saved.append(table.save(first, replace(LARGE, memory=memory(1))))
        return get(*arguments)

    monkeypatch.setattr(store, "get", meet_a_writer)
    assert table.load(KEY) == saved[0]


def test_a_memory_is_bounded(table: DynamoStateTable, store: MemoryStore) -> None:
    first = created(table)
    with pytest.raises(MemoryTooLargeError, match=f"{MAX_MEMORY_BYTES} are allowed"):
        table.save(first, replace(LARGE, memory=memory(size=600_000)))
    with pytest.raises(MemoryTooLargeError, match="ExplodingTensor"):
        table.save(first, replace(LARGE, memory={"text": "a" * (33 << 20)}))
    assert names(store) == []
    assert table.load(KEY) == first


def test_an_item_that_is_full_of_other_things_leaves_no_object(
    table: DynamoStateTable, store: MemoryStore
) -> None:
    noise = random.Random(0)
    full = replace(
        LARGE, blocked_by="".join(chr(noise.randrange(33, 1000)) for _ in range(400_000))
    )
    with pytest.raises(MemoryTooLargeError, match="409600 are allowed"):
        table.save(created(table), full)
    assert names(store) == []


def test_who_needs_the_verdict_only_reads_no_memory(
    table: DynamoStateTable, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.save(created(table), LARGE.with_status(RuleStatus.ISSUES_FOUND))
    monkeypatch.setattr(store, "get", None)
    found = DynamoStateTable(clients.dynamodb(), "states").load(KEY)
    assert found is not None
    assert found.state.status is RuleStatus.ISSUES_FOUND


@pytest.mark.parametrize("name", ["job.json", "_stepwatch/memory/../../job.json", ""])
def test_a_name_that_no_evaluator_gave_is_not_read(store: MemoryStore, name: str) -> None:
    store.put("job.json", b"{}")
    with pytest.raises(DamagedMemoryError, match="not the name of a memory"):
        RuleMemories(lambda _: store).get(KEY, name)


@pytest.mark.parametrize("data", [b"", b"x", zlib.compress(b"[1, 2")[:-1], zlib.compress(b"[1, 2")])
def test_what_is_no_memory_is_not_decompressed(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"memory|delimiter"):
        decompressed_memory(data)


def test_two_deployments_share_no_object(store: MemoryStore) -> None:
    """Both may be at the same version with the same memory; each removes its own."""
    first, second = (RuleMemories(lambda _: store, table) for table in ("first", "second"))
    data = zlib.compress(b"{}")
    names = [memories.put(KEY, 7, data) for memories in (first, second)]
    first.remove(KEY, names[0])
    assert second.get(KEY, names[1]) == data
