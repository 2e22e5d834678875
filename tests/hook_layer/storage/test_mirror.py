from __future__ import annotations

import pytest

from hook_layer.storage.base import StorageError, Store
from hook_layer.storage.memory import MemoryStore
from hook_layer.storage.mirror import MirrorStore
from hook_layer.testing.store_contract import StoreContract
from tests.hook_layer.doubles import Switchable


class TestMirrorStore(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return MirrorStore(MemoryStore("primary"), MemoryStore("copy"))


def test_both_stores_get_everything_and_lose_what_is_removed() -> None:
    primary, copy = MemoryStore("primary"), MemoryStore("copy")
    mirror = MirrorStore(primary, copy)
    mirror.put("index/a", [b"1", memoryview(b"2")])
    mirror.put("job.json", b"{}")
    mirror.delete("job.json")
    for store in (primary, copy):
        assert list(store.list()) == ["index/a"]
        assert store.get("index/a") == b"12"
    assert mirror.uri == primary.uri


def test_a_copy_that_fails_is_reported_once_and_costs_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    primary, copy = MemoryStore("primary"), Switchable(lambda key: key.startswith("events"))
    mirror = MirrorStore(primary, copy)
    for key in ("events/a", "index/a", "events/b"):
        mirror.put(key, b"x")
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "events/a" in caplog.text
    assert list(primary.list()) == ["events/a", "events/b", "index/a"]
    assert list(copy.list()) == ["index/a"]


def test_the_first_store_says_whether_it_worked_and_the_copy_is_there_all_the_same() -> None:
    primary, copy = Switchable(lambda _: True), MemoryStore("copy")
    mirror = MirrorStore(primary, copy)
    with pytest.raises(StorageError):
        mirror.put("events/a", b"x")
    assert copy.get("events/a") == b"x"
    assert not mirror.exists("events/a")
