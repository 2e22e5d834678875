"""`stepwatch run`, as a user types it."""

from __future__ import annotations

import fcntl
import html
import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path

import pytest

from rule_runtime import create_trial
from rule_runtime.embedded.session_folder import default_folder
from tests.rule_runtime.cli.invoking import invoke
from tests.rule_runtime.embedded.receiver import SECRET, receiving
from tests.rule_runtime.processes import completed

SCRIPT = Path(__file__).resolve().parent / "scripts" / "sick_script.py"
STEPWATCH = Path(sys.executable).parent / "stepwatch"
ENDLESS = "100000000"


def stepwatch(
    folder: Path, *arguments: str | Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    return completed([STEPWATCH, "run", *arguments], cwd=folder, env={**os.environ, **environment})


def test_an_unchanged_script_is_stopped_and_judged_again_alike(tmp_path: Path) -> None:
    done = stepwatch(
        tmp_path,
        "--rule",
        "vanishing_gradient",
        "--rule",
        "loss_not_decreasing",
        "--out-dir",
        "out",
        "--output",
        "json",
        "--",
        sys.executable,
        SCRIPT,
        ENDLESS,
    )
    assert done.returncode == 1, done.stderr
    assert "trained to the end" not in done.stderr
    assert "stop requested by vanishing_gradient" in done.stderr
    assert done.stderr.count("LossNotDecreasing: with its defaults it compares") == 1
    vanishing, _ = json.loads(done.stdout)
    assert vanishing["RuleEvaluationStatus"] == "IssuesFound"
    again = completed(
        [str(STEPWATCH), "evaluate", "out", "--rule", "vanishing_gradient", "--output", "json"],
        cwd=tmp_path,
    )
    assert again.returncode == 1
    assert json.loads(again.stdout)[0]["Evidence"] == vanishing["Evidence"]


def test_who_observes_lets_it_train_to_the_end_and_saves_at_a_given_interval(
    tmp_path: Path,
) -> None:
    done = stepwatch(
        tmp_path, "--rule", "vanishing_gradient", "--rule", "non_finite", "--stop", "never",
        "--save-interval", "2", "--", SCRIPT, "9",
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "trained to the end" in done.stdout
    (folder,) = (tmp_path / "runs").iterdir()
    assert f"runs/{folder.name}" in done.stdout.replace("\n", "")
    assert create_trial(str(folder)).steps() == [0, 2, 4, 6, 8]


def test_a_run_begins_densely_without_an_interval(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    done = stepwatch(tmp_path, "--rule", "non_finite", "--out-dir", folder, "--", SCRIPT, "61")
    assert done.returncode == 0, done.stderr
    assert create_trial(str(folder)).steps() == [*range(11), *range(12, 51, 2), 60]


def test_of_a_pack_fatal_issues_stop_it_and_others_where_that_is_asked_for(
    tmp_path: Path,
) -> None:
    reported = "the run continues: only fatal findings stop it; `--stop any` stops at any"
    pack = ["--pack", "original", "--save-interval", "1"]
    done = stepwatch(tmp_path, "--pack", "recommended", "--save-interval", "1", "--", SCRIPT, "40")
    assert done.returncode == 1, done.stderr
    assert "trained to the end" in done.stdout
    assert reported in done.stderr
    done = stepwatch(tmp_path, *pack, "--stop", "any", "--", SCRIPT, ENDLESS)
    assert done.returncode == 1, done.stderr
    assert "trained to the end" not in done.stdout
    (rule,) = re.findall("stop requested by (.*)", done.stderr)
    (finding,) = re.findall(rf"^{rule}: (.*) \(worker_0", done.stderr, re.MULTILINE)
    assert done.stderr.count(finding) == 1  # and once in the summary
    assert reported not in done.stderr


def test_a_script_that_fails_by_itself_is_told_so_for_good(tmp_path: Path) -> None:
    done = stepwatch(
        tmp_path, "--rule", "exploding_tensor", "--out-dir", "runs/a", "--", SCRIPT, "9", "fail"
    )
    assert done.returncode == 4, done.stderr
    assert "the script ended with status 9" in done.stderr
    assert "tensors: runs/a" in done.stdout
    status, reported = invoke("status", "a", "--output-path", tmp_path / "runs")
    assert status == 0
    assert "a-run-1: Failed: the script ended with status 9" in reported
    assert create_trial(str(tmp_path / "runs" / "a")).loaded_all_steps


def test_what_the_script_prints_is_no_json(tmp_path: Path) -> None:
    output = ["--save-interval", "1", "--output", "json"]
    rule = tmp_path / "mine.py"
    rule.write_text("from rule_runtime.rules.non_finite import *\nprint('loaded')\n")
    done = stepwatch(tmp_path, "--rule", f"{rule}:NonFinite", *output, "--", SCRIPT, "3")
    assert done.returncode == 0, done.stderr
    (verdict,) = json.loads(done.stdout)
    assert verdict["RuleEvaluationStatus"] == "NoIssuesFound"
    assert "loaded" in done.stderr
    assert "trained to the end" in done.stderr
    file = tmp_path / "new" / "verdicts.json"
    options = ["--rule", "exploding_tensor", *output, "--output-file", file]
    done = stepwatch(tmp_path, *options, "--", SCRIPT, "3")
    assert done.stdout == "trained to the end\n"
    assert json.loads(file.read_text())[0]["RuleEvaluationStatus"] == "NoIssuesFound"


def test_a_folder_that_cannot_be_written_to_is_told_before_the_training(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = stepwatch(tmp_path, "--out-dir", "file", "--", SCRIPT, ENDLESS)
    assert done.returncode == 2
    assert "a part of the path is a file; give another folder" in done.stderr


@pytest.mark.parametrize(
    ("program", "status", "message"),
    [("print('nothing')", 2, ""), ("raise SystemExit(3)", 4, "the script ended with status 3")],
)
def test_a_script_that_trains_nothing_is_reported_in_a_line(
    tmp_path: Path, program: str, status: int, message: str
) -> None:
    (tmp_path / "idle.py").write_text(program)
    (tmp_path / "told.txt").write_text("of the run before")
    done = stepwatch(tmp_path, "--out-dir", "out", "--output-file", "told.txt", "--", "idle.py")
    assert done.returncode == status
    assert message in done.stderr
    assert "out: the script saved no step, so nothing was evaluated" in done.stderr
    assert "Gradient" not in done.stdout
    assert "of the run before" not in (tmp_path / "told.txt").read_text()


def test_a_rule_that_is_named_must_be_able_to_judge_as_in_evaluate(tmp_path: Path) -> None:
    rules = ["--rule", "exploding_tensor", "--rule", "tree_depth"]
    done = stepwatch(tmp_path, *rules, "--out-dir", "out", "--", SCRIPT, "3")
    assert done.returncode == 2, done.stderr
    assert "not evaluated" in done.stdout.replace("\n", " ")
    assert invoke("evaluate", tmp_path / "out", *rules)[0] == 2
    alone = invoke("evaluate", tmp_path / "out")
    assert (alone[0], invoke("status", "out", "--output-path", tmp_path)[0]) == (0, 0)


@pytest.mark.parametrize("sent_by", ["terminal", "kill"])
def test_an_interrupted_script_is_judged_as_far_as_it_came(tmp_path: Path, sent_by: str) -> None:
    terminal, ours = pty.openpty()

    def begin() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # who runs the tests may ignore it
        if sent_by == "terminal":
            fcntl.ioctl(ours, termios.TIOCSCTTY, 0)

    command = [
        *(str(STEPWATCH), "run", "--stop", "never", "--rule", "vanishing_gradient"),
        *("--out-dir", "runs/a", "--", str(SCRIPT), ENDLESS),
    ]
    process = subprocess.Popen(
        command,
        stdin=ours,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        start_new_session=True,
        preexec_fn=begin,  # noqa: PLW1509
    )
    assert process.stderr is not None
    try:
        assert process.stderr.readline() == "\n"  # a progress bar may stand there
        assert "vanishing_gradient:" in process.stderr.readline()  # it has begun to train
        if sent_by == "terminal":
            os.write(terminal, b"\x03")
        else:
            process.send_signal(signal.SIGINT)
        printed, reported = process.communicate(timeout=120)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        os.close(terminal)
        os.close(ours)
    assert process.returncode == 130, reported
    assert "the script was interrupted" in reported
    assert reported.count("KeyboardInterrupt") == 1  # the script's
    assert "IssuesFound" in printed
    assert "tensors: runs/a" in printed
    result = json.loads(
        (tmp_path / "runs/a/run-1/rule-output/vanishing_gradient/status.json").read_text()
    )
    assert result["DebugRuleEvaluationStatuses"][0]["RuleEvaluationStatus"] == "IssuesFound"
    assert "a-run-1: Stopped" in invoke("status", "a", "--output-path", tmp_path / "runs")[1]


def test_a_script_that_was_killed_has_ended(tmp_path: Path) -> None:
    (tmp_path / "dies.py").write_text(
        SCRIPT.read_text().replace("raise SystemExit(9)", "import os; os.kill(os.getpid(), 9)")
    )
    done = stepwatch(
        tmp_path, "--save-interval", "1", "--out-dir", "a", "--", "dies.py", "9", "fail"
    )
    assert done.returncode in {1, 4}, done.stderr
    assert (
        "a-run-1: Failed: the script ended with status 137"
        in invoke("status", "a", "--output-path", tmp_path)[1]
    )
    assert create_trial(str(tmp_path / "a")).loaded_all_steps


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rule", "Vanishing", "--", "x.py"], "did you mean 'VanishingGradient'?"),
        (["--", "nosuchcommand", "x.py"], "nosuchcommand: there is no such command"),
        (["--pack", "mine", "--", "x.py"], "there is no pack 'mine'"),
        (["--", "nosuch.py"], "nosuch.py: the script does not exist"),
    ],
)
def test_mistakes_end_with_2(
    tmp_path: Path, arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, reported = invoke("run", *arguments)
    assert status == 2
    assert message in reported


def test_folders_are_named_after_the_script() -> None:
    folders = {default_folder("train") for _ in range(9)}
    assert all(Path(folder).name.startswith("train-20") for folder in folders)
    assert len(folders) == 9


class TestMessages:
    def test_findings_and_the_end_are_posted(self, tmp_path: Path) -> None:
        with receiving() as receiver:
            done = stepwatch(
                tmp_path, "--rule", "vanishing_gradient", "--rule", "exploding_tensor", "--out-dir",
                "runs/job", "--notify", receiver.url, "--", SCRIPT, ENDLESS,
            )  # fmt: skip
        assert done.returncode == 1, done.stderr
        found, ended = receiver.messages
        details = html.escape(found["details"], quote=False)
        assert found == {
            "text": f"job: vanishing_gradient found an issue: {details}",
            "job": "job",
            "rule": "vanishing_gradient",
            "status": "IssuesFound",
            "step": 0,
            "details": found["details"],
        }
        assert "gradient/0.weight: mean(|g|)" in found["details"].replace("Sequential_", "")
        assert (ended["rule"], ended["status"]) == (None, "Stopped")
        assert "rules that found issues: vanishing_gradient" in ended["text"]
        assert SECRET not in done.stdout + done.stderr

    def test_what_cannot_be_told_breaks_nothing(self, tmp_path: Path) -> None:
        with receiving() as receiver:
            receiver.statuses = [404] * 9
            done = stepwatch(
                tmp_path, "--rule", "exploding_tensor", "--out-dir", "job", "--", SCRIPT, "3",
                STEPWATCH_NOTIFY_URL=receiver.url,
            )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert [each["status"] for each in receiver.messages] == ["Completed"]
        assert done.stderr.count("did not accept a message (HTTP status 404)") == 1
        assert SECRET not in done.stdout + done.stderr
        assert not [
            file for file in (tmp_path / "job").rglob("*.json") if SECRET in file.read_text()
        ]

    def test_what_is_no_address_is_a_mistake_ahead_of_the_training(self, tmp_path: Path) -> None:
        done = stepwatch(tmp_path, "--notify", f"ftp://host/{SECRET}", "--", SCRIPT, ENDLESS)
        assert done.returncode == 2
        assert "--notify needs a URL such as https://HOST/" in done.stderr
        assert SECRET not in done.stderr
