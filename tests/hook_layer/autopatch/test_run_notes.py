from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any
from weakref import ref

import pytest

from hook_layer.autopatch import HookSource
from hook_layer.autopatch.run_notes import NOTES_VARIABLE, RunNotes

TRAIN = (
    "import sys; from pathlib import Path\n"
    "from hook_layer.autopatch.run_notes import RunNotes\n"
    "notes, in_group = RunNotes(Path(sys.argv[1])), sys.argv[2] == 'in a group'\n"
    "print(notes.may_train(is_one_of_several=in_group), flush=True)\n"
    "if sys.stdin.readline():\n"
    "    notes.training_ended()\n"
    "    print('ended', flush=True)\n"
    "    sys.stdin.read()\n"
)


def begin(folder: Path, how: str = "in a group") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", TRAIN, str(folder), how],
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


def test_a_process_that_nobody_knows_of_is_no_worker_of_one_that_trains(tmp_path: Path) -> None:
    notes = RunNotes.make(tmp_path / "notes", ())
    search = [begin(tmp_path / "notes", "alone") for _ in range(3)]
    allowed = [worker.pid for worker in search if answer(worker) == "True"]
    assert len(allowed) == 1
    assert notes.trainings == allowed
    for worker in search:
        worker.communicate("")


def test_a_training_that_ended_has_no_more_workers_though_its_process_goes_on(
    tmp_path: Path,
) -> None:
    notes = RunNotes.make(tmp_path / "notes", ())
    first = begin(tmp_path / "notes")
    assert answer(first) == "True"
    assert first.stdin is not None
    first.stdin.write("end\n")
    first.stdin.flush()
    assert answer(first) == "ended"
    later = begin(tmp_path / "notes")
    assert answer(later) == "False"
    assert notes.trainings == [first.pid]  # which may still be told to end
    for worker in (later, first):
        worker.communicate("")


def test_who_asks_twice_is_answered_the_same(tmp_path: Path) -> None:
    notes = RunNotes.make(tmp_path / "notes", ())
    assert notes.may_train()
    assert notes.may_train()


class ClosableHook:
    only_logs_mistakes = False

    def __init__(self, out_dir: str) -> None:
        self.out_dir = out_dir
        self.closed: list[bool] = []

    def limit_values(self) -> None:
        pass

    def close(self, *, end_of_training: bool = True) -> None:
        self.closed.append(end_of_training)


def test_a_hook_that_is_closed_ends_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    RunNotes.make(tmp_path / "notes", ())
    monkeypatch.setenv(NOTES_VARIABLE, str(tmp_path / "notes"))
    kind: Any = ClosableHook
    hook = HookSource(out_dir=str(tmp_path)).make(kind)
    assert hook is not None
    later = begin(tmp_path / "notes")
    assert answer(later) == "True"
    later.communicate("")
    hook.close(end_of_training=False)
    assert hook.closed == [False]
    later = begin(tmp_path / "notes")
    assert answer(later) == "False"
    later.communicate("")
    died = ref(hook)
    del hook
    assert died() is None


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
