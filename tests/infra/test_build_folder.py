"""Folders that are kept between runs: the newest of each kind stay."""

from __future__ import annotations

import os
import time
from pathlib import Path

from infra.build_folder import KEPT, SAFE_AGE_S, publish, reuse


def make(folder: Path, age_s: float = 0) -> Path:
    folder.mkdir(parents=True)
    (folder / "file").write_text(folder.name)
    changed = time.time() - age_s
    os.utime(folder, (changed, changed))
    return folder


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_newest_stay_and_older_ones_go(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    for number in range(KEPT + 3):
        make(kept / f"layer-{number}", age_s=SAFE_AGE_S + 100 + number)
    other = make(kept / "function-0", age_s=SAFE_AGE_S * 9)
    publish(make(tmp_path / "new"), kept / "layer-new")
    assert names(kept) == {"layer-new", other.name, *(f"layer-{i}" for i in range(KEPT - 1))}


def test_what_another_process_may_be_using_stays(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    for number in range(KEPT + 3):
        make(kept / str(number), age_s=SAFE_AGE_S - 100)
    publish(make(tmp_path / "new"), kept / "new")
    assert len(names(kept)) == KEPT + 4


def test_reuse_makes_a_folder_new_again(tmp_path: Path) -> None:
    folder = make(tmp_path / "a", age_s=SAFE_AGE_S * 2)
    assert reuse(folder)
    assert time.time() - folder.stat().st_mtime < 60
    assert not reuse(tmp_path / "absent")


def test_the_first_of_two_writers_wins(tmp_path: Path) -> None:
    first, second = make(tmp_path / "first"), make(tmp_path / "second")
    publish(first, tmp_path / "kept" / "x")
    publish(second, tmp_path / "kept" / "x")
    assert (tmp_path / "kept" / "x" / "file").read_text() == "first"
