from __future__ import annotations

from pathlib import Path

import boto3
import pytest
from moto import mock_aws

from hook_layer.format.errors import SessionFileError
from hook_layer.format.job_file import JobFile
from hook_layer.format.paths import JOB_FILE
from hook_layer.format.session_file import SESSION_FILE, SessionFile, SessionRun
from hook_layer.storage.base import open_store
from hook_layer.storage.local import LocalStore
from rule_runtime import create_trial
from rule_runtime.testing import TrialBuilder
from rule_runtime.trial.sessions import StoredRun, folder_of_sessions, one_run_at, runs_at


def run(name: str, uri: str = "") -> SessionRun:
    return SessionRun(name, uri, "01RUN", "2026-11-26T00:00:00Z", 1)


def write(folder: Path, *runs: SessionRun) -> Path:
    session = SessionFile(("python", "train.py"), "/", "2026-11-26T00:00:00Z", runs)
    LocalStore(folder).put(SESSION_FILE, session.encode())
    return folder


def test_the_folder_of_a_run_is_that_run(tmp_path: Path) -> None:
    assert runs_at(str(tmp_path)) == [StoredRun("", str(tmp_path))]


def test_runs_are_found_inside_a_session_that_was_moved(tmp_path: Path) -> None:
    folder = write(tmp_path / "here", run("run-1"), run("run-2", "s3://bucket/elsewhere/"))
    assert runs_at(f"{folder}/") == [
        StoredRun("run-1", f"{folder}/run-1"),
        StoredRun("run-2", "s3://bucket/elsewhere/"),
    ]


def test_a_run_that_began_after_the_file_was_written_is_found(tmp_path: Path) -> None:
    folder = write(tmp_path, run("run-1"))
    job = JobFile("job", "01RUN", "local", "2026-11-26T00:00:00Z")
    LocalStore(folder / "run-2").put(JOB_FILE, job.encode())
    assert [each.name for each in runs_at(str(folder))] == ["run-1", "run-2"]


def test_a_session_with_one_run_opens_as_a_trial(tmp_path: Path) -> None:
    folder = write(tmp_path, run("run-1"))
    TrialBuilder(LocalStore(folder / "run-1")).step(3, {"loss": [1.0]})
    assert create_trial(str(folder)).steps() == [3]
    assert create_trial(f"file://{folder}").steps() == [3]


def test_several_runs_are_named(tmp_path: Path) -> None:
    folder = write(tmp_path, run("run-1"), run("run-2"))
    with pytest.raises(ValueError, match=r"2 runs: run-1, run-2; give the folder of one"):
        one_run_at(str(folder))


def test_a_session_without_a_run_says_so(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no run has begun in this session"):
        runs_at(str(write(tmp_path)))


def test_a_damaged_session_file_is_named(tmp_path: Path) -> None:
    (tmp_path / SESSION_FILE).write_text('{"SchemaVersion": 1, "Comm')
    with pytest.raises(SessionFileError, match=r"session\.json"):
        create_trial(str(tmp_path))


@pytest.mark.parametrize("root", ["local", "memory://folder-of-sessions", "s3://tensors/runs"])
def test_the_sessions_in_a_folder_are_named(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        boto3.client("s3").create_bucket(Bucket="tensors")
        check_named_sessions(str(tmp_path) if root == "local" else root)


def check_named_sessions(folder: str) -> None:
    store = open_store(folder)
    data = SessionFile(("python", "train.py"), "/", "2026-11-26T00:00:00Z").encode()
    assert folder_of_sessions(folder) == ""
    for key in (
        "notes.txt",
        "a/readme",
        "a0/x/session.json",
        *(f"b{i:02}/run-1/x" for i in range(9)),
    ):
        store.put(key, b"{}")
    assert folder_of_sessions(folder) == ""
    for i in range(2):
        store.put(f"b{i:02}/{SESSION_FILE}", data)
    text = f"{folder} is a folder of sessions: b00, b01; give one of them, such as {folder}/b00"
    assert folder_of_sessions(folder) == text
    with pytest.raises(ValueError, match="is a folder of sessions: b00, b01"):
        runs_at(folder)
    for i in range(2, 30):
        store.put(f"b{i:02}/{SESSION_FILE}", data)
    assert "b08, b09 and more; stop" in folder_of_sessions(folder, "stop")
    store.put(SESSION_FILE, data)  # a session itself
    assert folder_of_sessions(folder) == ""
