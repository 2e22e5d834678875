"""`stepwatch clean`, as a user types it: what it removes, and all that it never removes."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hook_layer.format.job_file import JobFile
from hook_layer.format.paths import JOB_FILE
from hook_layer.format.session_file import SESSION_FILE, SessionFile, SessionRun
from hook_layer.run.folder_claim import FolderClaim
from hook_layer.storage.local import LocalStore
from rule_runtime.cli.app import app
from tests.rule_runtime.cli.invoking import invoke, invoke_json, train

NOW = datetime.now(timezone.utc)


def store_session(path: Path, *, days: float = 0.0, has_ended: bool = True, uri: str = "") -> Path:
    """Store a session with one run, which started some days ago."""
    train(path / "run-1", steps=3)
    LocalStore(path / "run-1").put(JOB_FILE, JobFile("job", "id", "local", "").encode())
    time = f"{NOW - timedelta(days=days):%Y-%m-%dT%H:%M:%SZ}"
    run = SessionRun("run-1", uri, "id", time, 1, ended_at=time, end="Completed")
    session = SessionFile(("python", "train.py"), ".", time, (run,), ended_at=time, exit_status=0)
    if not has_ended:
        session = replace(session, ended_at=None, exit_status=None)
    (path / SESSION_FILE).write_bytes(session.encode())
    return path


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def asked(folder: Path, answer: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["clean", str(folder)], input=answer, env={"COLUMNS": "200"})
    return done.exit_code, done.output


def test_sessions_are_listed_and_removed_after_a_yes(runs: Path) -> None:
    for name in ("a", "b"):
        store_session(runs / name, days=3)
    status, said = asked(runs, "y\n")
    assert status == 0
    assert "3 days" in said
    assert "ended with status 0" in said
    assert "Remove 2 sessions, " in said
    assert "kB?" in said
    assert list(runs.iterdir()) == []


@pytest.mark.parametrize(("answer", "status"), [("n\n", 0), ("\n", 0), ("", 2)])
def test_nothing_is_removed_without_a_yes(runs: Path, answer: str, status: int) -> None:
    session = store_session(runs / "a")
    found, said = asked(runs, answer)
    assert found == status
    assert "nothing was removed" in said
    assert (session / "run-1" / JOB_FILE).is_file()
    assert ("add --yes" in said) == (status == 2)


def test_a_session_may_be_named_itself(runs: Path) -> None:
    one, other = store_session(runs / "a"), store_session(runs / "b")
    assert invoke("clean", one, "--yes")[0] == 0
    assert not one.exists()
    assert other.is_dir()


def test_the_newest_and_the_recent_ones_can_be_kept(runs: Path) -> None:
    for days in (1, 2, 30, 40):
        store_session(runs / f"{days}-days", days=days)
    assert invoke("clean", runs, "--older-than", 35, "--yes")[0] == 0
    assert sorted(path.name for path in runs.iterdir()) == ["1-days", "2-days", "30-days"]
    assert invoke("clean", runs, "--keep", 1, "--yes")[0] == 0
    assert [path.name for path in runs.iterdir()] == ["1-days"]
    assert "nothing to remove" in invoke("clean", runs, "--keep", 1, "--yes")[1]


def test_json_lists_and_removes_only_with_yes(runs: Path) -> None:
    store_session(runs / "a")
    status, (listed,) = invoke_json("clean", runs)
    assert (status, listed["Action"], listed["IsRemoved"]) == (0, "remove", False)
    files = [path for path in (runs / "a").rglob("*") if path.is_file()]
    assert listed["Bytes"] == sum(path.stat().st_size for path in files)
    done = CliRunner().invoke(app, ["clean", str(runs), "--yes", "--output", "json"])
    assert '"IsRemoved": true' in done.stdout
    assert not (runs / "a").exists()


def test_a_session_without_a_recorded_end_is_kept(runs: Path) -> None:
    session = store_session(runs / "a", days=99, has_ended=False)
    said = invoke("clean", runs, "--yes")[1]
    assert "keep: may still run" in said
    assert session.is_dir()


def test_a_session_of_which_a_process_still_trains_is_kept(runs: Path) -> None:
    session = store_session(runs / "a")
    claim = FolderClaim(LocalStore(session / "run-1"))
    assert claim.take() is None
    try:
        assert "keep: may still run" in invoke("clean", runs, "--yes")[1]
        assert session.is_dir()
    finally:
        claim.release()
    assert invoke("clean", runs, "--yes")[0] == 0
    assert not session.exists()


def test_files_that_stepwatch_did_not_write_are_kept(runs: Path) -> None:
    session = store_session(runs / "a")
    script, model = session / "train.py", session / "run-1" / "model.pt"
    other = runs / "other" / "notes.txt"
    other.parent.mkdir()
    for path in (script, model, other):
        path.write_text("mine")
    run_of_a_hook = runs / "hook"
    train(run_of_a_hook, steps=1)
    status, said = invoke("clean", runs, "--yes")
    assert status == 0
    assert str(script) in said
    assert str(model) in said
    files = {
        path for path in runs.rglob("*") if path.is_file() and run_of_a_hook not in path.parents
    }
    assert files == {script, model, other}
    assert list((run_of_a_hook / "index").rglob("*.json"))


def test_links_are_not_followed(runs: Path, tmp_path: Path) -> None:
    outside = store_session(tmp_path / "outside" / "session")
    session = store_session(runs / "a")
    (runs / "link").symlink_to(outside)
    (session / "run-2").symlink_to(outside / "run-1")
    (session / "run-1" / "index" / "link").symlink_to(outside)
    (session / "run-1" / "rule-output").symlink_to(outside)
    assert invoke("clean", runs, "--yes")[0] == 0
    assert (outside / SESSION_FILE).is_file()
    assert list((outside / "run-1" / "index").rglob("*.json"))
    assert not (session / SESSION_FILE).exists()


def test_a_run_that_was_written_elsewhere_is_kept(runs: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    train(elsewhere, steps=1)
    store_session(runs / "a", uri=elsewhere.as_uri())
    assert invoke("clean", runs, "--yes")[0] == 0
    assert list((elsewhere / "index").rglob("*.json"))


def test_a_damaged_session_is_reported_and_kept(runs: Path) -> None:
    session = store_session(runs / "a")
    (session / SESSION_FILE).write_text('{"SchemaVersion": 99}')
    status, said = invoke("clean", runs, "--yes")
    assert status == 0
    assert "SchemaVersion" in said
    assert (session / "run-1").is_dir()


def test_an_age_that_is_no_age_is_a_mistake(runs: Path) -> None:
    status, said = invoke("clean", runs, "--older-than", "1e10")
    assert status == 2
    assert "36500" in said


def test_a_folder_without_sessions_and_a_missing_one(tmp_path: Path) -> None:
    assert invoke("clean", tmp_path) == (0, f"{tmp_path}: no session is stored here\n")
    status, said = invoke("clean", tmp_path / "missing")
    assert status == 2
    assert "there is no such folder" in said
