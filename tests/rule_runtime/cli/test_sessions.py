"""Sessions of `stepwatch run` with several trainings, as a user types it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hook_layer.format.session_file import SESSION_FILE, parse_session_file
from rule_runtime import create_trial
from tests.rule_runtime.cli.invoking import invoke
from tests.rule_runtime.processes import completed

SCRIPT = Path(__file__).resolve().parent / "scripts" / "rates_script.py"
STEPWATCH = Path(sys.executable).parent / "stepwatch"
RULES = ["--rule", "non_finite", "--save-interval", "5", "--output", "json"]


def stepwatch(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return completed(
        [STEPWATCH, "run", "--out-dir", "session", *RULES, *arguments],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def verdicts(printed: str) -> dict[str, str]:
    found: list[dict[str, Any]] = json.loads(printed)
    return {verdict["Run"]: verdict["RuleEvaluationStatus"] for verdict in found}


def test_each_training_of_a_process_is_judged_by_itself(tmp_path: Path) -> None:
    done = stepwatch(
        tmp_path, "--stop", "never", "--", sys.executable, SCRIPT, "0.1", "1e30", "0.2"
    )
    assert done.returncode == 1, done.stderr
    expected = {"run-1": "NoIssuesFound", "run-2": "IssuesFound", "run-3": "NoIssuesFound"}
    assert verdicts(done.stdout) == expected
    assert "run-2: non_finite: " in done.stderr
    folder = tmp_path / "session"
    for name in expected:
        assert create_trial(str(folder / name)).steps() == list(range(0, 40, 5))
    session = parse_session_file((folder / SESSION_FILE).read_bytes(), file=SESSION_FILE)
    assert session.command == (sys.executable, str(SCRIPT), "0.1", "1e30", "0.2")
    assert [(run.name, run.end, run.attempt) for run in session.runs] == [
        (name, "Completed", 1) for name in expected
    ]
    assert (session.exit_status, session.working_directory) == (0, str(tmp_path))

    status, reported = invoke("evaluate", folder, "--rule", "non_finite", "--output", "json")
    assert (status, verdicts(reported)) == (1, expected)
    status, reported = invoke(
        "evaluate", folder / "run-1", "--rule", "non_finite", "--output", "json"
    )
    assert status == 0
    assert "Run" not in json.loads(reported)[0]
    status, reported = invoke("status", folder, "--output", "json")
    assert status == 1
    assert [job["TrainingJobName"] for job in json.loads(reported)] == [
        f"session-{name}" for name in expected
    ]
    status, reported = invoke("runs", tmp_path, "--output", "json")
    (listed,) = json.loads(reported)
    assert (listed["Findings"], len(listed["Runs"])) == (["non_finite"], 3)
    assert 0 < listed["LastLoss"] < 1
    with pytest.raises(ValueError, match="is a session with 3 runs: run-1, run-2, run-3"):
        create_trial(str(folder))


def test_after_a_stop_no_run_of_the_session_trains(tmp_path: Path) -> None:
    again = f"until {sys.executable} {SCRIPT} 0.1 endless 0.2; do true; done"
    done = stepwatch(tmp_path, "--patience", "5", "--", "bash", "-c", again)
    assert done.returncode == 1, done.stderr
    assert "trained with 0.2" not in done.stderr
    assert "stop requested by non_finite" in done.stderr
    assert done.stderr.count("trained with 0.1") == 1
    assert set(verdicts(done.stdout)) == {"run-1", "run-2"}


def test_processes_of_a_pool_are_runs_and_those_beyond_the_limit_are_counted(
    tmp_path: Path,
) -> None:
    rates = ["0.1", "0.1", "0.1"]
    done = stepwatch(tmp_path, "--max-runs", "2", "--", sys.executable, SCRIPT, "pool", *rates)
    assert done.returncode == 0, done.stderr
    assert verdicts(done.stdout) == {"run-1": "NoIssuesFound", "run-2": "NoIssuesFound"}
    assert done.stderr.count("trained with 0.1") == 3
    assert "1 more run began: --max-runs watches more" in done.stderr


def test_a_folder_is_never_shared(tmp_path: Path) -> None:
    for number in (1, 2):
        done = stepwatch(tmp_path, "--", sys.executable, SCRIPT, "0.1")
        assert done.returncode == 0, done.stderr
        reported = "session holds another run: this session is in session-2"
        assert (reported in done.stderr) == (number == 2)
    for folder in ("session", "session-2"):
        assert len(create_trial(str(tmp_path / folder)).steps()) == 8


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_passed_on_and_what_was_saved_is_judged(
    tmp_path: Path, number: signal.Signals
) -> None:
    # A shell in between does not pass signals on.
    command = ["bash", "-c", f"{sys.executable} {SCRIPT} wait; true"]
    options = ["--out-dir", "session", *RULES, "--output-file", "v.json"]
    with subprocess.Popen(
        [str(STEPWATCH), "run", *options, "--", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "trains\n"
        process.send_signal(number)
        _, reported = process.communicate(timeout=120)
    assert process.returncode == 128 + number, reported
    assert f"{number.name} ended the command" in reported
    text = (tmp_path / "v.json").read_text()
    assert verdicts(text) == {"run-1": "NoIssuesFound"}, text + reported
    session = parse_session_file((tmp_path / "session" / SESSION_FILE).read_bytes(), file="")
    assert session.runs[0].end == "Killed"


def test_a_restarted_program_is_another_attempt(tmp_path: Path) -> None:
    twice = f"{sys.executable} {SCRIPT} 0.1; {sys.executable} {SCRIPT} 0.1"
    done = stepwatch(tmp_path, "--", "bash", "-c", twice)
    assert done.returncode == 0, done.stderr
    session = parse_session_file((tmp_path / "session" / SESSION_FILE).read_bytes(), file="")
    assert [(run.name, run.attempt) for run in session.runs] == [("run-1", 1), ("run-2", 2)]
    reported = "run-2: the same program began again, attempt 2; it counts from step 0"
    assert reported in done.stderr
