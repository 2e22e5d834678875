"""All stores pass the one contract, and each what is its own."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import pytest
from moto.server import ThreadedMotoServer

from hook_layer.storage import StorageError, Store, open_store
from hook_layer.storage.base import (
    AppendStore,
    CreateStore,
    ObjectNotFoundError,
    StoreRefusedError,
    path_or_uri,
)
from hook_layer.storage.local import LocalStore
from hook_layer.storage.memory import MemoryStore
from hook_layer.storage.s3 import S3Store
from hook_layer.storage.write_check import check_writable
from hook_layer.testing.store_contract import StoreContract


@pytest.fixture(scope="module")
def s3_endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3_store(s3_endpoint: str, request: pytest.FixtureRequest) -> S3Store:
    client = boto3.client(
        "s3",
        endpoint_url=s3_endpoint,
        region_name="us-east-1",
        aws_access_key_id="testing",
        aws_secret_access_key="testing",
    )
    bucket = f"bucket-{abs(hash(request.node.nodeid))}"
    client.create_bucket(Bucket=bucket)
    return S3Store(f"s3://{bucket}//jobs/mnist-7", client=client)


class CreateContract(StoreContract):
    def test_of_several_writers_one_creates_an_object(self, store: Store) -> None:
        assert isinstance(store, CreateStore)
        with ThreadPoolExecutor(8) as pool:
            created = list(pool.map(lambda n: store.create("a/b.json", b"%d" % n), range(8)))
        assert created.count(True) == 1
        assert store.get("a/b.json") == b"%d" % created.index(True)
        with pytest.raises(ValueError, match="key"):
            store.create("../b.json", b"")


class TestLocalStore(CreateContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return LocalStore(tmp_path / "not made yet")


class TestMemoryStore(CreateContract):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore("contract")


class TestS3Store(CreateContract):
    @pytest.fixture
    def store(self, s3_store: S3Store) -> Store:
        return s3_store

    def test_listing_crosses_pages(self, s3_store: S3Store) -> None:
        keys = [f"index/{number:05d}" for number in range(1005)]
        for key in keys:
            s3_store.put(key, b"")
        assert list(s3_store.list("index/")) == keys

    def test_a_missing_bucket_is_refused_and_the_error_says_what_to_do(
        self, s3_store: S3Store
    ) -> None:
        elsewhere = S3Store("s3://no-such-bucket-here/x", client=s3_store._client)
        with pytest.raises(StoreRefusedError, match=r"s3://no-such-bucket-here/x/a: .*aws s3 mb"):
            elsewhere.put("a", b"x")

    @pytest.mark.parametrize("as_bytes", [True, False])
    def test_a_large_object_is_stored_in_parts(
        self, s3_store: S3Store, as_bytes: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("hook_layer.storage.s3._MIN_PARTS_BYTES", 5 << 20)
        array = np.random.default_rng(0).integers(0, 256, 12 << 20, dtype=np.uint8)
        s3_store.put("big", array.tobytes() if as_bytes else [b"head", array.data])
        stored = s3_store._client.head_object(
            Bucket=s3_store.bucket, Key=f"{s3_store.prefix}big", PartNumber=1
        )
        assert stored["PartsCount"] == 3
        assert s3_store.get("big") == (b"" if as_bytes else b"head") + array.tobytes()


def test_a_buffers_reader_is_a_seekable_file() -> None:
    from hook_layer.storage.s3 import _BuffersReader

    reader = _BuffersReader([b"abc", memoryview(b""), b"defgh"])
    assert reader.seek(0, io.SEEK_END) == 8
    assert reader.seek(2) == 2
    assert reader.read(3) == b"cde"
    assert reader.read() == b"fgh"
    assert reader.read() == b""


def test_a_partial_write_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_some(descriptor: int, buffers: list[Any]) -> int:
        return os.write(descriptor, b"".join(buffers)[: len(buffers[0]) + 5])

    monkeypatch.setattr("hook_layer.storage.whole_files.os.writev", write_some)
    array = np.arange(1000, dtype="f4")
    LocalStore(tmp_path).put("a", [b"head", b"", array.data, b"tail" * 10])
    assert (tmp_path / "a").read_bytes() == b"head" + array.tobytes() + b"tail" * 10


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("1 2 8:1 / / rw - ext4 /dev/sda1 rw\n9 2 0:5 / /dev rw shared:1 - tmpfs x rw\n", "ext4"),
        ("1 2 0:5 / / rw - tmpfs x rw\n", ""),
        ("nonsense\n", ""),
    ],
)
def test_the_type_of_a_file_system_is_read_or_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, expected: str
) -> None:
    from hook_layer.storage import whole_files

    (tmp_path / "mountinfo").write_text(table)
    monkeypatch.setattr(whole_files, "_MOUNTS", str(tmp_path / "mountinfo"))
    whole_files._file_system_type.cache_clear()
    assert whole_files._file_system_type(8, 1) == expected
    whole_files._file_system_type.cache_clear()


def test_a_local_file_has_the_users_permissions(tmp_path: Path) -> None:
    LocalStore(tmp_path).put("a", b"x")
    previous = os.umask(0)
    os.umask(previous)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o666 & ~previous


def test_a_local_store_survives_the_removal_of_its_folder(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "trial")
    store.put("index/a", b"x")
    (tmp_path / "trial" / "index" / "a").unlink()
    (tmp_path / "trial" / "index").rmdir()
    store.put("index/b", b"y")
    assert list(store.list()) == ["index/b"]


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs a folder in which none can be made")
def test_a_folder_that_cannot_be_made_is_refused_for_good() -> None:
    with pytest.raises(StoreRefusedError, match="the folder cannot be created there"):
        LocalStore("/proc/tensors").put("index/a", b"x")


def test_whether_a_place_can_be_written_to_is_seen_without_a_trace(tmp_path: Path) -> None:
    check_writable(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mine").mkdir()
    check_writable(tmp_path / "mine")
    assert list((tmp_path / "mine").iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreRefusedError, match="a part of the path is a file"):
        check_writable(tmp_path / "file" / "tensors")
    check_writable("memory://anything")


def test_containers_that_look_at_one_folder_do_not_meet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    put = LocalStore.put

    def put_beside_another(store: LocalStore, key: str, data: bytes) -> None:
        written.append(key)
        if len(written) == 1:  # the other one has the same process number
            check_writable(tmp_path)
        put(store, key, data)

    monkeypatch.setattr(LocalStore, "put", put_beside_another)
    check_writable(tmp_path)
    assert len(set(written)) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("num_removals", [1, 2])
def test_a_folder_that_another_process_removes_meanwhile_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_removals: int
) -> None:
    removals = iter(range(num_removals))
    mkdir = os.mkdir

    def mkdir_in_a_race(path: str, mode: int = 0o777) -> None:
        mkdir(path, mode)
        if next(removals, None) is not None:
            os.rmdir(path)  # noqa: PTH106

    monkeypatch.setattr(os, "mkdir", mkdir_in_a_race)
    LocalStore(tmp_path / "trial").put("a", b"x")
    assert (tmp_path / "trial" / "a").read_bytes() == b"x"


def test_a_folder_that_is_always_removed_may_be_there_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "mkdir", lambda *_: None)
    with pytest.raises(StorageError) as raised:
        LocalStore(tmp_path / "trial").put("a", b"x")
    assert not isinstance(raised.value, StoreRefusedError)


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    (tmp_path / "taken" / "inner").mkdir(parents=True)
    with pytest.raises(StorageError):
        store.put("taken", b"x")
    assert list(store.list()) == []


def test_a_folder_that_cannot_be_walked_is_a_storage_error(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put("index/a", b"x")
    (tmp_path / "index" / "loop").symlink_to(tmp_path / "index" / "loop2")
    (tmp_path / "index" / "loop2").symlink_to(tmp_path / "index" / "loop")
    (tmp_path / "again").symlink_to(tmp_path)
    with pytest.raises(StorageError):
        list(store.list())


def test_a_name_that_the_system_refuses_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="too long"):
        LocalStore(tmp_path).exists("x" * 300)


def test_open_store_knows_paths_and_uris(tmp_path: Path) -> None:
    by_path = open_store(tmp_path / "a b")
    assert by_path.uri == f"file://{tmp_path}/a%20b/"
    assert open_store(by_path.uri).uri == by_path.uri
    assert open_store(f" {tmp_path} ").uri == f"file://{tmp_path}/"
    open_store("memory://shared").put("a", b"x")
    assert open_store("memory://shared/").get("a") == b"x"


@pytest.mark.parametrize("name", ["a#1", "a?b", "a%41", "a&b +c", "\u202e"])
def test_a_path_with_characters_of_uris_is_that_folder(tmp_path: Path, name: str) -> None:
    store = open_store(tmp_path / name)
    store.put("key", b"1")
    assert (tmp_path / name / "key").read_bytes() == b"1"
    assert open_store(store.uri).get("key") == b"1"
    assert path_or_uri(store) == str(tmp_path / name)


def test_open_store_refuses_what_it_does_not_know() -> None:
    with pytest.raises(ValueError, match="gs://"):
        open_store("gs://bucket/x")
    for short in ("s3://", "s3://a/x"):
        with pytest.raises(ValueError, match="the name of a bucket has 3 to 63 letters"):
            open_store(short)
    for odd, reason in {
        "file://elsewhere/x": "machine",
        "": "names no folder",
        "file://": "names no folder",
        "s3:/bucket/x": "has one slash after s3:, but needs s3://",
        "a\nb": "control character",
        "s3://bucket/a/../b": "no deployment evaluates",
        "s3://bucket/a\\b": "no deployment evaluates",
        f"s3://bucket/{'é' * 450}": "at most 900 bytes",
    }.items():
        with pytest.raises(ValueError, match=reason):
            open_store(odd)


def test_settings_that_allow_no_client_are_an_error_of_the_uri(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobodys")
    with pytest.raises(ValueError, match=r"s3://bucket/x.*profile \(nobodys\)"):
        open_store("s3://bucket/x")


def test_credentials_are_those_of_the_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    def access_key() -> str:
        return S3Store("s3://bucket/x")._client._get_credentials().access_key  # type: ignore[attr-defined]

    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "first")
    boto3.client("s3", region_name="eu-west-1")  # the session that boto3 shares keeps them
    assert access_key() == "first"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "second")
    assert access_key() == "second"


# Stores that can append ---------------------------------------------------------------------------


def test_folders_can_append_and_others_say_that_they_cannot(tmp_path: Path) -> None:
    assert isinstance(LocalStore(tmp_path), AppendStore)
    assert not isinstance(MemoryStore(), AppendStore)


def test_append_keeps_what_is_there_or_says_that_it_is_gone(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.append("a/b", b"one", 0)
    store.append("a/b", [b"two", b"three"], 3)
    assert store.get("a/b") == b"onetwothree"
    store.append("a/b", b"2", 3)
    assert store.get("a/b") == b"one2"
    store.append("a/b", b"new", 0)
    assert store.get("a/b") == b"new"
    with pytest.raises(StorageError, match="some of its 9 bytes are missing"):
        store.append("a/b", b"x", 9)
    with pytest.raises(ObjectNotFoundError):
        store.append("a/c", b"x", 9)
    assert store.get("a/b") == b"new"
