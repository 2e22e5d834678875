"""`stepwatch watch`: a run on the terminal, while it trains and behind it."""

from __future__ import annotations

import io
import math
from pathlib import Path

import numpy as np
from rich.console import Console
from typer.testing import CliRunner

from hook_layer.format.job_file import JobFile
from hook_layer.format.session_file import SESSION_FILE, SessionFile, SessionRun
from hook_layer.storage.local import LocalStore
from rule_runtime.cli.app import app
from rule_runtime.cli.watch import await_next_run, sparkline, wait_for_run, watch_run
from rule_runtime.live_page.follower import RunFollower
from rule_runtime.rules.non_finite import NonFinite
from rule_runtime.testing import TrialBuilder
from tests.rule_runtime.cli.invoking import invoke, invoke_json, trial_in


def begin(trial: TrialBuilder) -> None:
    job = JobFile(
        training_job_name="mnist-7",
        run_id=trial.run,
        platform="local",
        started_at="2026-01-01T00:00:00Z",
    )
    trial.store.put("job.json", job.encode())
    trial.collections(losses=("loss",), weights=("weight",))


def test_how_a_run_stands(tmp_path: Path) -> None:
    trial = trial_in(tmp_path / "run")
    begin(trial)
    for step in range(3):
        trial.step(step * 10, {"loss": np.float32([1.0 - step / 10])})
    status, output = invoke("watch", tmp_path / "run", "--once", "--rule", "non_finite")
    assert status == 0
    assert "mnist-7: step 20, 3 saved, continues" in output
    assert "InProgress" in output
    assert "█▄▁" in output
    trial.step(30, {"loss": [np.nan]})
    trial.end()
    status, found = invoke_json("watch", tmp_path / "run", "--once", "--rule", "non_finite")
    assert status == 1
    assert found["has_ended"]
    (verdict,) = found["verdicts"]
    assert verdict["RuleEvaluationStatus"] == "IssuesFound"


def test_the_cause_comes_first_and_rules_without_a_finding_are_counted(tmp_path: Path) -> None:
    trial = trial_in(tmp_path / "run")
    begin(trial)
    trial.step(0, {"loss": [1.0], "weight": [1.0]})
    trial.step(1, {"loss": [np.nan], "weight": [np.nan]})
    trial.end()
    status, output = invoke("watch", tmp_path / "run", "--once", "--pack", "recommended")
    assert status == 1
    cause, change = output.index("A number is not finite: seen at step 1"), output.index("Change: ")
    assert cause < change < output.index("IssuesFound")
    assert "not evaluated; `-v` shows them" in output
    assert "PlateauedLoss" not in output
    assert "PlateauedLoss" in invoke("watch", tmp_path / "run", "--once", "-v")[1]


def test_rules_that_could_not_judge_are_reported_with_the_reason(tmp_path: Path) -> None:
    trial = trial_in(tmp_path / "run")
    begin(trial)
    trial.step(0, {"loss": [1.0]})
    trial.end()
    _, output = invoke("watch", tmp_path / "run", "--once", "--rule", "dead_relu")
    assert "no output of a ReLU layer was saved" in output


def test_no_name_and_no_verdict_is_cut_on_a_narrow_terminal(tmp_path: Path) -> None:
    trial = trial_in(tmp_path / "run")
    begin(trial)
    trial.collections(losses=("Loss",))
    trial.step(0, {"model.head.CrossEntropyLoss_output_0": [np.nan]})
    trial.end()
    for command in (["watch", "--once"], ["evaluate"]):
        arguments = [*command, str(tmp_path / "run"), "--rule", "NonFinite", "--rule", "dead_relu"]
        output = CliRunner().invoke(app, arguments, env={"COLUMNS": "40"}).output
        assert "…" not in output
        assert "status: IssuesFound" in output
        assert "status: not evaluated" in output
        assert max(map(len, output.splitlines())) <= 40


def test_no_name_of_the_run_is_a_command_to_the_terminal(tmp_path: Path) -> None:
    trial = trial_in(tmp_path / "run")
    job = JobFile("mnist\x1b[2J", trial.run or "", "local", "2026-01-01T00:00:00Z")
    trial.store.put("job.json", job.encode())
    trial.collections(losses=("loss",), weights=("weight",))
    trial.step(0, {"loss": [1.0], "weight\x1b]52;c;ZXZpbA==": [np.nan]})
    trial.end()
    _, output = invoke("watch", tmp_path / "run", "--once", "--rule", "non_finite")
    assert "]52;c;ZXZpbA==" in output
    assert output.replace("\n", "").isprintable()


def test_a_place_without_a_run_is_reported(tmp_path: Path) -> None:
    status, output = invoke("watch", tmp_path / "nowhere", "--once")
    assert status == 2
    assert "nothing of a run is stored there" in output


def test_a_run_that_has_ended_is_shown_without_being_asked_to_end(tmp_path: Path) -> None:
    trial = trial_in(tmp_path / "run")
    begin(trial)
    trial.step(0, {"loss": [np.nan]})
    trial.end()
    status, output = invoke("watch", tmp_path / "run", "--rule", "non_finite")
    assert status == 1
    assert "mnist-7: step 0, 1 saved, has ended" in output
    assert output.count("IssuesFound") == 1
    assert invoke_json("watch", tmp_path / "run", "--rule", "non_finite")[1]["has_ended"]


def test_a_mistyped_folder_is_not_waited_for_without_end(tmp_path: Path) -> None:
    status, output = invoke("watch", tmp_path / "nowhere", "--timeout", "0")
    assert status == 2
    assert "nothing of a run is stored there; give the folder" in output
    begin(trial_in(tmp_path / "bad-shard"))
    _, output = invoke("watch", tmp_path / "bad-chard", "--timeout", "0")
    assert "nothing of a run is stored there (did you mean bad-shard?)" in output
    (tmp_path / "empty").mkdir()
    _, output = invoke("watch", tmp_path / "empty", "--timeout", "0")
    assert "nothing of a run is stored there; give the folder" in output  # not itself
    status, output = invoke("watch", tmp_path / "nowhere" / "run")
    assert status == 2
    assert "nor is there the folder above it (--timeout waits for it all the same)" in output


def test_a_run_is_waited_for_as_long_as_somebody_says() -> None:
    now = 0.0

    def pause() -> None:
        nonlocal now
        now += 5.0

    assert wait_for_run(lambda: None, 20.0, pause, clock=lambda: now) is None
    assert now == 20.0
    begun_run = lambda: "run" if now >= 100.0 else None  # noqa: E731 - of one line
    assert wait_for_run(begun_run, math.inf, pause, clock=lambda: now) == "run"
    assert now == 100.0


def test_an_interruption_ends_the_wait() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    assert wait_for_run(lambda: None, math.inf, interrupt) is None


def session_in(folder: Path, *names: str, ended_at: str | None = None) -> None:
    runs = tuple(SessionRun(name, "", name, "2026-01-01T00:00:00", 1) for name in names)
    session = SessionFile(("python",), "/", "2026-01-01T00:00:00", runs, ended_at=ended_at)
    LocalStore(folder).put(SESSION_FILE, session.encode())


def test_of_a_session_the_runs_are_shown_one_after_the_other(tmp_path: Path) -> None:
    session_in(tmp_path)
    _, output = invoke("watch", tmp_path, "--timeout", "0")
    assert "nothing of a run is stored there" in output
    session_in(tmp_path, "run-1")
    first = str(tmp_path / "run-1")

    def begin_another() -> None:
        session_in(tmp_path, "run-1", "run-2")

    assert await_next_run(str(tmp_path), first, begin_another) == str(tmp_path / "run-2")

    def end() -> None:
        session_in(tmp_path, "run-1", ended_at="2026-01-01T00:00:01")

    session_in(tmp_path, "run-1")
    assert await_next_run(str(tmp_path), first, end) is None
    assert await_next_run(first, first, end) is None


def test_a_session_that_has_ended_is_shown_without_being_asked_to_end(tmp_path: Path) -> None:
    session_in(tmp_path, "run-1", "run-2", ended_at="2026-01-01T00:00:01")
    trial = trial_in(tmp_path / "run-2")
    begin(trial)
    trial.step(0, {"loss": [np.nan]})
    trial.end()
    status, output = invoke("watch", tmp_path, "--rule", "non_finite")
    assert status == 1
    assert "mnist-7: step 0, 1 saved, has ended" in output


def test_a_run_of_which_no_rule_could_judge_anything_is_no_success(tmp_path: Path) -> None:
    trial = trial_in(tmp_path / "run")
    begin(trial)
    trial.step(0, {"loss": [1.0]})
    trial.end()
    status, output = invoke("watch", tmp_path / "run", "--once", "--rule", "vanishing_gradient")
    assert status == 2
    assert "not evaluated" in output


def test_it_is_shown_until_the_training_has_ended() -> None:
    trial = TrialBuilder()
    begin(trial)
    trial.step(0, {"loss": [1.0]})
    follower = RunFollower(trial.store, [("NonFinite", NonFinite())])
    steps = iter([1, 2])

    def train_on() -> None:
        step = next(steps, None)
        if step is None:
            trial.end()
        else:
            trial.step(step, {"loss": [1.0 / step]})

    written = io.StringIO()
    numbers = watch_run(
        follower,
        console=Console(file=written, width=120, force_terminal=True),
        pause=train_on,
    )
    assert numbers.reading.has_ended
    assert numbers.reading.last_step == 2
    text = written.getvalue()
    assert "step 0, 1 saved, continues" in text
    assert "step 2, 3 saved, has ended" in text
    assert "1 rule without a finding" in text


def test_an_interruption_ends_it() -> None:
    trial = TrialBuilder()
    begin(trial)
    trial.step(0, {"loss": [1.0]})
    follower = RunFollower(trial.store, [])

    def interrupt() -> None:
        raise KeyboardInterrupt

    numbers = watch_run(follower, console=None, pause=interrupt)
    assert numbers.reading.num_steps == 1


def test_curves_of_one_line() -> None:
    assert sparkline([]) == ""
    assert sparkline([5.0, 5.0]) == "▁▁"
    assert sparkline([0.0, None, 7.0]) == "▁×█"  # noqa: RUF001 - the sign that is shown
    long = sparkline([float(number) for number in range(1000)], width=8)
    assert long == "▁▂▃▄▅▆▇█"
