"""A test suite for stores: subclass `StoreContract` and provide a store.

pytest collects the subclass:

    class TestMyStore(StoreContract):
        @pytest.fixture
        def store(self) -> Store:
            return MyStore(...)
"""

from __future__ import annotations

import threading

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from hook_layer.format.records import EventBuffers, StepEncoder
from hook_layer.storage.base import ObjectNotFoundError, Store

__all__ = ["StoreContract"]

_BAD_KEYS = ("", "/etc/passwd", "../up", "a/../../b", "a//b", "a/./b", "a\\b", "a\x00b", "x" * 2000)


class StoreContract:
    """Tests of the guarantees that readers and writers of a trial need."""

    @pytest.fixture
    def store(self) -> Store:
        """Return an empty store."""
        raise NotImplementedError("a subclass gives the store")

    def test_uri_names_the_store_and_ends_in_a_slash(self, store: Store) -> None:
        scheme, found, _ = store.uri.partition("://")
        assert found
        assert scheme
        assert store.uri.endswith("/")

    def test_an_object_comes_back_as_it_was_put(self, store: Store) -> None:
        store.put("events/a.bin", b"\x00\x01content")
        assert store.get("events/a.bin") == b"\x00\x01content"
        assert store.size("events/a.bin") == 9
        assert store.exists("events/a.bin")

    def test_buffers_are_written_one_after_the_other(self, store: Store) -> None:
        array = np.arange(300_000, dtype=np.float32)
        store.put("big", [b"head", array.view(np.uint8).data, b"", b"tail"])
        assert store.get("big") == b"head" + array.tobytes() + b"tail"

    def test_an_event_file_is_stored_as_it_is_encoded(self, store: Store) -> None:
        encoder = StepEncoder(step=3, mode=ModeKeys.TRAIN, mode_step=3, wall_time=1.5)
        events = EventBuffers()
        for size in (0, 10, 500_000):
            events.append(encoder.encode(f"w{size}", np.arange(size, dtype=np.float32)))
        store.put("events/a", events)
        assert store.get("events/a") == b"".join(events)
        assert store.size("events/a") == events.nbytes

    def test_an_empty_object_exists(self, store: Store) -> None:
        store.put("training_job_end.ts", b"")
        assert store.exists("training_job_end.ts")
        assert store.get("training_job_end.ts") == b""

    def test_putting_again_replaces_the_object(self, store: Store) -> None:
        store.put("a", b"the first and longer one")
        store.put("a", b"second")
        assert store.get("a") == b"second"

    @pytest.mark.parametrize(
        ("start", "length", "expected"),
        [
            (0, None, b"0123456789"),
            (3, 4, b"3456"),
            (3, None, b"3456789"),
            (0, 0, b""),
            (8, 100, b"89"),
            (8, 1 << 62, b"89"),
            (10, 5, b""),
            (1 << 62, 5, b""),
        ],
    )
    def test_a_range_is_cut_at_the_end_of_the_object(
        self, store: Store, start: int, length: int | None, expected: bytes
    ) -> None:
        store.put("digits", b"0123456789")
        assert store.get("digits", start, length) == expected

    def test_a_negative_range_is_refused(self, store: Store) -> None:
        store.put("digits", b"0123456789")
        with pytest.raises(ValueError, match="negative"):
            store.get("digits", -1)
        with pytest.raises(ValueError, match="negative"):
            store.get("digits", 0, -1)

    def test_a_missing_object_is_an_error_that_names_it(self, store: Store) -> None:
        with pytest.raises(ObjectNotFoundError, match=r"index/none\.json"):
            store.get("index/none.json")
        with pytest.raises(FileNotFoundError):
            store.size("index/none.json")
        assert not store.exists("index/none.json")

    def test_a_prefix_is_no_object(self, store: Store) -> None:
        store.put("index/a.json", b"{}")
        assert not store.exists("index")
        with pytest.raises(ObjectNotFoundError):
            store.get("index")

    def test_listing_is_in_byte_order_and_below_the_prefix(self, store: Store) -> None:
        keys = ["index/1/b", "index/1/a", "index/0/z", "index.json", "events/1", "index-2", "Z"]
        for key in keys:
            store.put(key, b"x")
        assert list(store.list()) == sorted(keys)
        assert list(store.list("index/")) == ["index/0/z", "index/1/a", "index/1/b"]
        assert list(store.list("index/1/b")) == ["index/1/b"]
        assert list(store.list("nothing/")) == []

    def test_listing_goes_on_after_a_key(self, store: Store) -> None:
        keys = [f"index/{step // 10:03d}/{step:04d}.json" for step in range(25)]
        for key in reversed(keys):
            store.put(key, b"x")
        assert list(store.list("index/", after=keys[12])) == keys[13:]
        assert list(store.list("index/", after="index/001/0012.json.not-there")) == keys[13:]
        assert list(store.list("index/", after=keys[-1])) == []
        assert list(store.list("index/", after="a")) == keys

    def test_a_deleted_object_is_gone(self, store: Store) -> None:
        store.put("a", b"x")
        store.delete("a")
        store.delete("a")
        assert not store.exists("a")
        assert list(store.list()) == []

    @pytest.mark.parametrize("key", _BAD_KEYS)
    def test_a_key_that_could_lead_elsewhere_is_refused(self, store: Store, key: str) -> None:
        with pytest.raises(ValueError, match="key"):
            store.put(key, b"x")
        with pytest.raises(ValueError, match="key"):
            store.get(key)

    def test_a_reader_never_sees_a_part(self, store: Store) -> None:
        size = 200_000
        versions = {bytes([65 + number]) * size for number in range(4)}
        store.put("a", min(versions))
        seen: list[bytes] = []

        def read() -> None:
            seen.extend(store.get("a") for _ in range(20))

        reader = threading.Thread(target=read)
        reader.start()
        for version in sorted(versions) * 3:
            store.put("a", version)
        reader.join()
        assert set(seen) <= versions
