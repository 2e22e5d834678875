"""Which files of a checkpoint directory are new."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hook_layer.resuming.checkpoint_files import CheckpointFiles, open_inodes
from tests.hook_layer.doubles import Clock


def names(files: CheckpointFiles, root: Path) -> set[str]:
    """Return the news by name, and take them as known."""
    news = files.changed()
    files.accept(news)
    return {os.path.relpath(path, root) for path in news}


@pytest.fixture
def clock() -> Clock:
    return Clock()


def later(path: Path) -> None:
    """Let a file or folder look as if it had been changed a second later than it was."""
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 10**9))


def test_what_was_there_is_no_news(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "old.pt").write_bytes(b"old")
    files = CheckpointFiles(str(tmp_path), clock=clock)
    assert not files.changed()
    assert files.sizes == {"old.pt": 3}


def test_new_and_overwritten_files_are_news_until_they_are_accepted(
    tmp_path: Path, clock: Clock
) -> None:
    (tmp_path / "a.pt").write_bytes(b"1")
    files = CheckpointFiles(str(tmp_path), clock=clock)
    (tmp_path / "a.pt").write_bytes(b"22")
    (tmp_path / "epoch-1" / "shards").mkdir(parents=True)
    (tmp_path / "epoch-1" / "shards" / "0.pt").write_bytes(b"333")
    for _ in range(2):
        assert {Path(path).name for path in files.changed()} == {"a.pt", "0.pt"}
        clock.now += 1
    assert names(files, tmp_path) == {"a.pt", "epoch-1/shards/0.pt"}
    assert not files.changed()
    assert files.sizes == {"a.pt": 2, "epoch-1/shards/0.pt": 3}
    assert files.newest is not None
    assert files.newest[0] in files.sizes


def test_a_file_overwritten_with_as_many_bytes_is_news(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "a.pt"
    path.write_bytes(b"1")
    files = CheckpointFiles(str(tmp_path), clock=clock)
    clock.now += 1
    assert not files.changed()
    path.write_bytes(b"2")
    later(path)
    assert names(files, tmp_path) == {"a.pt"}


def test_a_file_that_was_replaced_is_news(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "a.pt"
    path.write_bytes(b"1")
    files = CheckpointFiles(str(tmp_path), clock=clock)
    (tmp_path / "a.tmp").write_bytes(b"2")
    (tmp_path / "a.tmp").rename(path)
    assert names(files, tmp_path) == {"a.pt"}


def test_removed_files_are_no_news(tmp_path: Path, clock: Clock) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.pt").write_bytes(b"1")
    files = CheckpointFiles(str(tmp_path), clock=clock)
    shutil.rmtree(tmp_path / "a")
    (tmp_path / "b" / "x.pt").unlink()
    assert not files.changed()
    clock.now += 1
    assert not files.changed()
    assert not files.sizes
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.pt").write_bytes(b"1")
    assert names(files, tmp_path) == {"a/x.pt"}


def test_a_folder_may_come_and_go(tmp_path: Path, clock: Clock) -> None:
    root = tmp_path / "checkpoints"
    files = CheckpointFiles(str(root), clock=clock)
    assert not files.changed()
    for content in (b"1", b"22"):
        root.mkdir()
        (root / "a.pt").write_bytes(content)
        assert names(files, root) == {"a.pt"}
        shutil.rmtree(root)
        assert not files.changed()


@pytest.mark.parametrize(
    "name", ["metadata.json", "metadata.json.sagemaker-uploaded", "a.pt.sagemaker-uploaded"]
)
def test_our_own_and_the_platforms_files_are_no_news(
    tmp_path: Path, clock: Clock, name: str
) -> None:
    files = CheckpointFiles(str(tmp_path), clock=clock)
    (tmp_path / name).write_bytes(b"1")
    assert not files.changed()


def test_what_is_created_within_the_same_tick_of_the_file_system_is_seen(
    tmp_path: Path, clock: Clock
) -> None:
    files = CheckpointFiles(str(tmp_path), clock=clock)
    (tmp_path / "a.pt").write_bytes(b"1")
    status = tmp_path.stat()
    assert names(files, tmp_path) == {"a.pt"}
    (tmp_path / "b.pt").write_bytes(b"1")
    os.utime(tmp_path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert names(files, tmp_path) == {"b.pt"}


def test_links(tmp_path: Path, clock: Clock) -> None:
    root = tmp_path / "checkpoints"
    (root / "one").mkdir(parents=True)
    (root / "one" / "loop").symlink_to(root)
    files = CheckpointFiles(str(root), clock=clock)
    (root / "one" / "a.pt").write_bytes(b"1")
    (root / "latest.pt").symlink_to(root / "one" / "a.pt")
    (root / "dangling").symlink_to(root / "nothing")
    assert names(files, root) == {"one/a.pt", "latest.pt"}
    assert not files.changed()


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "d/a", "d/e/a", "f/a"]), st.binary(min_size=1, max_size=3)
        ),
        max_size=12,
    )
)
@settings(max_examples=50, deadline=None)
def test_each_look_returns_what_was_written_since_the_last(writes: list[tuple[str, bytes]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root, clock = Path(folder), Clock()
        files = CheckpointFiles(folder, clock=clock)
        for number, (name, content) in enumerate(writes):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content)
            os.utime(root / name, ns=(0, number))
            clock.now += number % 3 * 0.03
            assert names(files, root) == {name}
            assert not files.changed()


def test_many_files_are_seen_sooner_or_later(tmp_path: Path, clock: Clock) -> None:
    for number in range(200):
        path = tmp_path / f"{number % 50:02d}" / f"{number:03d}.pt"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"1")
        os.utime(path, ns=(0, number))
    files = CheckpointFiles(str(tmp_path), clock=clock)
    clock.now += 1
    files.changed()
    newest = tmp_path / "49" / "199.pt"
    newest.write_bytes(b"22")
    assert names(files, tmp_path) == {"49/199.pt"}
    (tmp_path / "00" / "000.pt").write_bytes(b"22")
    looks = 0
    while names(files, tmp_path) != {"00/000.pt"}:
        looks += 1
        assert looks < 20
    (tmp_path / "new.pt").write_bytes(b"1")
    assert names(files, tmp_path) == {"new.pt"}


def test_too_many_folders_are_said_once(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hook_layer.resuming.checkpoint_files._MAX_FOLDERS", 3)
    for number in range(5):
        (tmp_path / str(number)).mkdir()
    files = CheckpointFiles(str(tmp_path), clock=clock)
    later(tmp_path)
    files.changed()
    assert caplog.text.count("not all are watched") == 1


def test_files_that_are_open(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    with path.open("wb") as file:
        assert os.fstat(file.fileno()).st_ino in open_inodes()
    assert path.stat().st_ino not in open_inodes()
