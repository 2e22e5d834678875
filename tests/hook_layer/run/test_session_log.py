"""The notes that the processes of one command share: with real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hook_layer.format.job_file import StopFile
from hook_layer.run.session_log import NOTES_VARIABLE, SessionLog

BEGIN = (
    "import os, sys\n"
    "from pathlib import Path\n"
    "from hook_layer.run.session_log import SessionLog\n"
    "notes = SessionLog(Path(sys.argv[1]))\n"
    "notes.process_trains()\n"
    "run = notes.begin_run('01RUN', '2026-11-26T00:00:00Z')\n"
    "print(run.name if run else None, run.attempt if run else 0, flush=True)\n"
    "for line in sys.stdin:\n"
    "    if line == 'end\\n':\n"
    "        notes.end_run(run.name, 'Completed')\n"
    "        print('ended', flush=True)\n"
    "    elif line == 'exec\\n':\n"
    "        os.execv(sys.executable, sys.orig_argv)\n"
)


def make(tmp_path: Path, max_runs: int = 32) -> SessionLog:
    return SessionLog.make(tmp_path / "notes", (), root="file:///session/", max_runs=max_runs)


class Trainer:
    """A process that begins a run; a text for its command line makes it another program."""

    def __init__(self, tmp_path: Path, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", BEGIN, str(tmp_path / "notes"), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.name, self.attempt = self.answer()

    def answer(self) -> list[str]:
        assert self.process.stdout is not None
        return self.process.stdout.readline().split()

    def command(self, text: str) -> list[str]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()
        return self.answer()

    def end(self) -> None:
        self.process.communicate("")


def test_each_training_is_a_run_and_an_attempt_follows_one_that_ended(tmp_path: Path) -> None:
    notes = make(tmp_path)
    first, at_the_same_time = Trainer(tmp_path), Trainer(tmp_path)
    other = Trainer(tmp_path, "another program")
    trainers = (first, at_the_same_time, other)
    assert [(each.name, each.attempt) for each in trainers] == [
        ("run-1", "1"),
        ("run-2", "1"),
        ("run-3", "1"),
    ]
    assert not any(noted.is_over for noted in notes.runs)
    assert sorted(notes.trainings) == sorted(each.process.pid for each in trainers)
    first.end()
    again = Trainer(tmp_path)
    assert (again.name, again.attempt) == ("run-4", "2")
    assert [noted.is_over for noted in notes.runs] == [True, False, False, False]
    assert notes.runs[0].run.end == "Killed"  # it noted no end
    assert notes.runs[1].run.uri == "file:///session/run-2/"
    for each in (at_the_same_time, other, again):
        each.end()
    assert notes.trainings == []


def test_a_run_ends_though_its_process_continues(tmp_path: Path) -> None:
    notes = make(tmp_path)
    trainer = Trainer(tmp_path)
    assert trainer.command("end") == ["ended"]
    (noted,) = notes.runs
    assert noted.is_over
    assert noted.run.end == "Completed"
    assert notes.trainings == [trainer.process.pid]
    trainer.end()


@pytest.mark.skipif(not hasattr(os, "execv"), reason="needs exec")
def test_a_program_that_replaces_itself_begins_another_run(tmp_path: Path) -> None:
    notes = make(tmp_path)
    trainer = Trainer(tmp_path)
    assert trainer.command("exec") == ["run-2", "2"]
    assert [(noted.is_over, noted.run.end) for noted in notes.runs] == [
        (True, "Killed"),
        (False, None),
    ]
    assert notes.trainings == [trainer.process.pid]
    trainer.end()


def test_runs_beyond_the_limit_are_counted(tmp_path: Path) -> None:
    notes = make(tmp_path, max_runs=1)
    trainers = [Trainer(tmp_path) for _ in range(3)]
    assert [each.name for each in trainers] == ["run-1", "None", "None"]
    assert notes.num_not_watched == 2
    for each in trainers:
        each.end()


def test_a_stop_is_for_every_run(tmp_path: Path) -> None:
    notes = make(tmp_path)
    assert notes.stop_request is None
    notes.request_stop(StopFile("NonFinite: NaN", "2026-11-26T00:00:00Z", "01RUN", "NonFinite"))
    request = notes.stop_request
    assert request is not None
    assert (request.reason, request.run_id) == ("NonFinite: NaN", None)


def test_the_environment_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(NOTES_VARIABLE, raising=False)
    assert SessionLog.of_environment() is None
    monkeypatch.setenv(NOTES_VARIABLE, str(tmp_path / "gone"))
    assert SessionLog.of_environment() is None
    SessionLog.make(tmp_path / "notes", ["torch"])
    monkeypatch.setenv(NOTES_VARIABLE, str(tmp_path / "notes"))
    notes = SessionLog.of_environment()
    assert notes is not None
    notes.imported("torch")
    notes.imported("torch")
    assert notes.frameworks == ["torch"]


def test_a_folder_that_is_gone_ends_no_training(tmp_path: Path) -> None:
    notes = SessionLog(tmp_path / "gone")
    notes.imported("torch")
    notes.process_trains()
    assert notes.begin_run("01RUN", "2026-11-26T00:00:00Z") is None
    assert (notes.frameworks, notes.lacking, notes.trainings) == ([], None, [])


def test_a_damaged_note_is_no_run(tmp_path: Path) -> None:
    notes = make(tmp_path)
    (tmp_path / "notes" / "run-1").write_text(json.dumps({"Name": 3}))
    (tmp_path / "notes" / "run-x").write_text("")
    assert notes.runs == []
