"""Commands that get a folder of sessions instead of one of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hook_layer.format.session_file import SESSION_FILE, SessionFile, SessionRun
from rule_runtime.cli.app import app
from rule_runtime.cli.times import duration_text, parsed_time
from tests.rule_runtime.cli.invoking import invoke, trial_in
from tests.tables import table

TIME = datetime.now(timezone.utc) - timedelta(hours=5)
START = f"{TIME:%Y-%m-%dT%H:%M:%SZ}"
SESSION = SessionFile(
    ("python", "train.py"), ".", START, (SessionRun("run-1", "", "01RUN", START, 1),)
)
ENDED = replace(
    SESSION, ended_at=f"{TIME + timedelta(minutes=150):%Y-%m-%dT%H:%M:%SZ}", exit_status=0
)
SESSIONS = {
    "train-20261130-064222-4e3c": ENDED,
    "pretrain_a_large_model-20261130-064222-4e3c": replace(ENDED, exit_status=1),
    "b": replace(ENDED, stopped_by="NonFinite"),
    "c": SESSION,
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, session in SESSIONS.items():
        trial = trial_in(Path("runs", name, "run-1"))
        trial.collections(losses=("loss",))
        trial.step(0, {"loss": [0.5]})
        Path("runs", name, SESSION_FILE).write_bytes(session.encode())
    return tmp_path / "runs"


@table(
    "command, advice",
    {
        "evaluate": ("evaluate runs", "give one of them, such as runs/b"),
        "report": ("report runs", "give one of them, such as runs/b"),
        "watch, which waits for a run elsewhere": (
            "watch runs",
            "give one of them, such as runs/b",
        ),
        "status": ("status runs", "give one of them, such as runs/b"),
        "compare": ("compare runs/b runs", "give one of them, such as runs/b"),
        "plot": ("plot runs/b runs", "give one of them, such as runs/b"),
        "download": ("download runs copy", "give one of them, such as runs/b"),
        "run": ("run runs", "`stepwatch evaluate` evaluates one, `stepwatch run` needs a command"),
        "run --out-dir": ("run --out-dir runs -- true", "give a new folder"),
    },
)
@pytest.mark.usefixtures("folder")
def test_the_sessions_are_named(command: str, advice: str) -> None:
    before = sorted(Path("runs").iterdir())
    status, output = invoke(*command.split())
    named = ", ".join(sorted(SESSIONS))
    assert (status, output) == (2, f"stepwatch: runs is a folder of sessions: {named}; {advice}\n")
    assert sorted(Path("runs").iterdir()) == before


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("width", [80, 100])
def test_they_are_a_table_of_80_columns(width: int) -> None:
    lines = CliRunner().invoke(app, ["runs"], env={"COLUMNS": str(width)}).output.splitlines()
    assert lines[0].startswith("┏")
    assert max(map(len, lines)) <= width
    text = " ".join("".join(lines).split())
    for part in (
        "│ train-20261130-064222-4e3c │ not evaluated │ 5 h │ 2 h │ 0.5 │",
        "not evaluated; exit",
        "│ b │ not evaluated; stopped │",
        "│ c │ not evaluated; running? │ 5 h │ │",
    ):
        assert part in text
    assert lines[-1] == "4 sessions in runs"


@table(
    "seconds, expected",
    {
        "negative": (-1.0, "0 s"),
        "below two minutes": (119.9, "119 s"),
        "minutes": (120.0, "2 min"),
        "hours": (2 * 3600.0, "2 h"),
        "days": (49 * 3600.0, "2 days"),
    },
)
def test_durations_have_one_unit(seconds: float, expected: str) -> None:
    assert duration_text(seconds) == expected


def test_other_texts_are_no_times() -> None:
    assert [parsed_time(text) for text in (None, "", "yesterday")] == [None] * 3
    assert parsed_time("2026-11-30T06:00:00") == parsed_time("2026-11-30T06:00:00Z")
