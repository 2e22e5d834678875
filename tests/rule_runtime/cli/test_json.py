"""`--output json` of the commands that do something: what was done, in one object."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import sysconfig
import urllib.request
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from typer.testing import CliRunner

from rule_runtime.cli.app import app
from tests.rule_runtime.cli.invoking import invoke, invoke_json, trial_in

STEPWATCH = Path(sys.executable).parent / "stepwatch"


def test_autopatch_tells_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    assert invoke_json("autopatch", "status") == (0, {"autopatch": "off"})
    status, reported = invoke_json("autopatch", "on")
    assert (status, reported["autopatch"]) == (0, "on")
    assert Path(reported["file"]).parent == tmp_path
    assert Path(reported["file"]).is_file()
    assert invoke("autopatch", "status") == (0, "on\n")
    assert invoke_json("autopatch", "off") == (0, {**reported, "autopatch": "off"})
    assert not list(tmp_path.iterdir())


def test_the_address_of_the_live_page_is_a_line_of_json(tmp_path: Path) -> None:
    trial_in(tmp_path / "run").step(0, {"Loss_output_0": np.ones(1, np.float32)})
    command = [str(STEPWATCH), "ui", str(tmp_path / "run"), "--port", "0", "--output", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"]
            assert url.startswith("http://127.0.0.1:")
            with urllib.request.urlopen(url, timeout=30) as page:
                assert b"<!doctype html>" in page.read()
        finally:
            process.send_signal(signal.SIGINT)


def test_nothing_but_json_is_printed_where_a_bar_would_be(tmp_path: Path) -> None:
    trial = trial_in(tmp_path / "run")
    for step in range(3):
        trial.step(step, {"Loss_output_0": np.ones(1, np.float32)})
    trial.end()
    run, page = str(tmp_path / "run"), str(tmp_path / "page.html")
    for arguments in (
        ["tensors", run],
        ["evaluate", run, "--rule", "NonFinite"],
        ["compare", run, run],
        ["download", run, str(tmp_path / "copy")],
        ["report", run, "--rule", "NonFinite", "--output-file", page],
        ["watch", run, "--once", "--rule", "NonFinite"],
        ["plot", run, "--output-file", str(tmp_path / "plot.svg"), "--regex", "Loss"],
    ):
        done = CliRunner().invoke(app, [*arguments, "--output", "json"])
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)
        assert done.stderr == "", arguments


TALKING_RULE = """
from rule_runtime.engine.outcome import Passed
from rule_runtime.engine.rule import Rule

print("loaded")


class Talking(Rule):
    def __init__(self):
        print("made")

    def check(self, step, memory):
        print("judging", step.step)
        return Passed()
"""


@pytest.mark.parametrize(
    ("command", "form"),
    [
        ("evaluate", "json"),
        ("evaluate", "junit"),
        ("evaluate", "sarif"),
        ("watch", "json"),
        ("report", "json"),
    ],
)
def test_what_a_rule_prints_stands_in_no_output_for_programs(
    command: str, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = f"{TALKING_RULE}# of {command} {form}"  # what was loaded once is not loaded again
    (tmp_path / "mine.py").write_text(source, encoding="utf-8")
    trial = trial_in(tmp_path / "run")
    trial.step(0, {"Loss_output_0": np.ones(1, np.float32)})
    trial.end()
    once = ["--once"] if command == "watch" else []
    arguments = [command, "run", *once, "--rule", "mine.py:Talking", "--output"]
    done = CliRunner().invoke(app, [*arguments, form])
    assert done.exit_code == 0, done.output
    assert done.stderr.split("\n")[:3] == ["loaded", "made", "judging 0"]
    assert done.stdout[0] in "{[<"
    assert ET.fromstring(done.stdout) if form == "junit" else json.loads(done.stdout)
    if form == "json":
        assert "judging 0" in CliRunner().invoke(app, [*arguments, "table"]).stdout


@pytest.mark.parametrize("command", ["tensors", "evaluate", "compare", "report"])
def test_a_bar_is_shown_at_a_terminal(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = trial_in(tmp_path / "run")
    for step in range(3):
        trial.step(step, {"Loss_output_0": np.ones(1, np.float32)})
    trial.end()
    monkeypatch.chdir(tmp_path)
    runs = ["run"] * (2 if command == "compare" else 1)
    rules = ["--rule", "NonFinite"] if command in {"evaluate", "report"} else []
    done = CliRunner().invoke(
        app, [command, *runs, *rules, "--output", "json"], env={"FORCE_COLOR": "1"}
    )
    assert done.exit_code == 0, done.output
    assert "3/3" in done.stderr
    assert json.loads(done.stdout)
