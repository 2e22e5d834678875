from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hook_layer.autopatch.run_notes import NOTES_VARIABLE, RunNotes

TRAIN = (
    "import sys; from pathlib import Path\n"
    "from hook_layer.autopatch.run_notes import RunNotes\n"
    "print(RunNotes(Path(sys.argv[1])).may_train(), flush=True)\n"
    "sys.stdin.read()\n"
)


def begin(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", TRAIN, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def answer(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_workers_train_together_and_what_comes_later_does_not(tmp_path: Path) -> None:
    notes = RunNotes.make(tmp_path / "notes", ())
    assert notes.trainings is None
    workers = [begin(tmp_path / "notes") for _ in range(2)]
    assert [answer(worker) for worker in workers] == ["True", "True"]
    assert sorted(notes.trainings or ()) == sorted(worker.pid for worker in workers)
    for worker in workers:
        worker.communicate("")
    assert notes.trainings == []
    for number in range(2):
        later = begin(tmp_path / "notes")
        assert answer(later) == "False"
        _, told = later.communicate("")
        assert ("only the first training of a command is watched" in told) == (number == 0)
    assert notes.trainings == []


def test_the_environment_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(NOTES_VARIABLE, raising=False)
    assert RunNotes.of_environment() is None
    monkeypatch.setenv(NOTES_VARIABLE, str(tmp_path / "gone"))
    assert RunNotes.of_environment() is None
    RunNotes.make(tmp_path / "notes", ["torch"])
    monkeypatch.setenv(NOTES_VARIABLE, str(tmp_path / "notes"))
    notes = RunNotes.of_environment()
    assert notes is not None
    notes.imported("torch")
    notes.imported("torch")
    assert notes.frameworks == ["torch"]


def test_a_folder_that_is_gone_stands_in_nobodys_way(tmp_path: Path) -> None:
    notes = RunNotes(tmp_path / "gone")
    notes.imported("torch")
    assert notes.may_train()
    assert (notes.frameworks, notes.lacking, notes.trainings) == ([], None, None)
