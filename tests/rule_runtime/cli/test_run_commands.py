"""`stepwatch run` with commands that start Python themselves: shells, launchers, `python -c`."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from rule_runtime import create_trial
from rule_runtime.configuration.ranks import RANKS
from tests.rule_runtime.cli.invoking import invoke
from tests.rule_runtime.processes import completed

SCRIPTS = Path(__file__).resolve().parent / "scripts"
SCRIPT = SCRIPTS / "sick_script.py"
WORKER = SCRIPTS / "distributed_script.py"
STEPWATCH = Path(sys.executable).parent / "stepwatch"
TORCHRUN = Path(sys.executable).parent / "torchrun"
ENDLESS = "100000000"
VANISHING = ("--rule", "vanishing_gradient")
FINE = ("--rule", "exploding_tensor")


def stepwatch(
    folder: Path, *arguments: str | Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    inherited = {key: value for key, value in os.environ.items() if "CONFIG" not in key}
    return completed(
        [STEPWATCH, "run", "--out-dir", "out", *arguments],
        timeout=150,
        cwd=folder,
        env=inherited | environment,
    )


def shell(folder: Path, *lines: str) -> Path:
    script = folder / "train.sh"
    script.write_text("\n".join(["#!/usr/bin/env bash", *lines, ""]))
    return script


def train(*arguments: str | Path) -> str:
    return shlex.join([sys.executable, *map(str, arguments)])


def test_a_shell_script_is_watched_stopped_and_goes_on_behind_the_training(tmp_path: Path) -> None:
    script = shell(tmp_path, "echo ahead", f"{train(SCRIPT, ENDLESS)}", "echo behind $?", "exit 5")
    done = stepwatch(tmp_path, *VANISHING, "--", "bash", script)
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("ahead\nbehind 3\n")
    assert "stepwatch: training was stopped by the rule vanishing_gradient" in done.stderr
    assert "Traceback" not in done.stderr
    marker = json.loads((tmp_path / "out" / "run-1" / "training_job_end.ts").read_text())
    assert marker["ExitStatus"] == 5


def test_its_exit_status_is_reported_where_nothing_was_found(tmp_path: Path) -> None:
    script = shell(tmp_path, train(SCRIPT, "12"), "exit 5")
    done = stepwatch(tmp_path, *FINE, "--", "bash", script)
    assert done.returncode == 4, done.stderr
    assert "the script ended with status 5" in done.stderr
    assert create_trial(str(tmp_path / "out")).steps() == [0, 10]


def test_what_the_user_has_python_find_and_do_at_its_start_is_kept(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "sitecustomize.py").write_text("print('my own start')\n")
    (mine / "only_here.py").write_text("import sys\nprint('found', 'sitecustomize' in sys.modules)")
    script = shell(tmp_path, f"{train('-c', 'import only_here')}", train(SCRIPT, "1"))
    done = stepwatch(tmp_path, *FINE, "--", "bash", script, PYTHONPATH=str(mine))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("my own start") == 3  # the command's own, too
    assert "found True" in done.stdout


@pytest.mark.parametrize("switch", ["-c", "-uc"])
def test_a_program_on_the_command_line_is_watched(tmp_path: Path, switch: str) -> None:
    program = f"import sys; sys.argv[1:] = ['3']\n{SCRIPT.read_text()}"
    done = stepwatch(tmp_path, *FINE, "--", sys.executable, switch, program)
    assert done.returncode == 0, done.stderr
    assert create_trial(str(tmp_path / "out")).steps() == [0]


def test_all_workers_of_a_launcher_stop_together(tmp_path: Path) -> None:
    """Started as a module; `run_ranks` starts the command `torchrun`."""
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone")
    options = ("--nproc-per-node", "2", WORKER, ENDLESS)
    done = stepwatch(tmp_path, *VANISHING, "--", *launcher, *options)
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("stepwatch: training was stopped by the rule vanishing_gradient") == 2
    assert "is in use by" not in done.stderr
    assert "another one" not in done.stderr
    trial = create_trial(str(tmp_path / "out"))
    assert trial.workers() == ["worker_0", "worker_1"]
    assert trial.loaded_all_steps


def run_ranks(folder: Path, what: str, *options: str) -> subprocess.CompletedProcess[str]:
    launcher = [TORCHRUN, "--standalone", "--nproc-per-node", "2", SCRIPTS / "ranks_script.py"]
    return stepwatch(folder, "--save-interval", "5", *options, "--", *launcher, what)


def test_faults_of_one_rank_are_found(tmp_path: Path) -> None:
    done = run_ranks(tmp_path, "faults", "--stop", "never")
    assert done.returncode == 1, done.stderr
    nan = r"NonFinite at step 30, on rank 1: Loss_output_0: 1 of 1 elements"
    for found in (r"ReplicaDivergence at step \d+: ", nan):
        assert re.search(found, done.stdout), done.stdout


@pytest.mark.parametrize("what", ["ddp", "fsdp2"])
def test_healthy_ranks_have_no_finding(tmp_path: Path, what: str) -> None:
    done = run_ranks(tmp_path, what)
    assert done.returncode == 0, done.stdout
    assert "rules found no issue" in done.stdout
    assert not list((tmp_path / "out" / "run-1" / "events").rglob("*worker_1*"))


def test_a_pipeline_is_judged_by_the_losses_of_its_last_stage(tmp_path: Path) -> None:
    done = run_ranks(tmp_path, "pipeline", "--rule", "replica_divergence", "--rule", "non_finite")
    assert " IssuesFound" not in done.stdout, done.stdout
    trial = create_trial(str(tmp_path / "out"))
    assert trial.tensor("CrossEntropyLoss_output_0").workers(5) == ["worker_1"]


@pytest.mark.parametrize(("ranks", "parameter"), RANKS.items())
def test_hooks_of_the_command_know_which_ranks_write(
    ranks: str, parameter: str, tmp_path: Path
) -> None:
    done = stepwatch(tmp_path, "--ranks", ranks, "--", "bash", "-c", 'cat "$STEPWATCH_CONFIG"')
    hook, _ = json.JSONDecoder().raw_decode(done.stdout)
    assert hook["DebugHookConfig"]["HookParameters"]["include_workers"] == parameter


def test_each_training_of_the_command_is_a_run(tmp_path: Path) -> None:
    script = shell(tmp_path, train(SCRIPT, "31"), train(SCRIPT, "11"), train(SCRIPT, "1"))
    done = stepwatch(tmp_path, *FINE, "--", "bash", script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("trained to the end") == 3
    for run, steps in (("run-1", [0, 10, 20, 30]), ("run-2", [0, 10]), ("run-3", [0])):
        assert create_trial(str(tmp_path / "out" / run)).steps() == steps


def test_a_command_whose_training_does_not_heed_the_request_is_ended(
    tmp_path: Path,
) -> None:
    hangs = tmp_path / "hangs.py"
    hangs.write_text(
        SCRIPT.read_text().replace(
            "    criterion(",
            "    if step == 3:\n        import threading; threading.Event().wait()\n    criterion(",
        )
    )
    script = shell(tmp_path, train(hangs, "9"), "echo behind $?")
    done = stepwatch(
        tmp_path, *VANISHING, "--patience", "0", "--save-interval", "1", "--", "bash", script
    )
    assert done.returncode == 1, done.stderr
    assert "behind 0" not in done.stdout


def lacking_python(folder: Path) -> Path:
    venv.create(folder / "bare", with_pip=False)
    return folder / "bare" / "bin" / "python"


def test_a_python_without_this_package_is_reported_once_and_goes_on(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("print('a torch')")
    python = lacking_python(tmp_path)
    line = shlex.join([str(python), "-c", "import torch"])
    done = stepwatch(tmp_path, *FINE, "--", "bash", shell(tmp_path, line, line, f"{python} -V"))
    assert done.returncode == 2, done.stderr
    assert done.stdout.count("a torch\n") == 2
    assert done.stderr.count(f"{python} has no stepwatch installed") == 2
    assert done.stderr.count("the run continues unwatched") == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["true"], "no Python that it started imported a framework"),
        ([train("-c", "import json")], "no Python that it started imported a framework"),
        ([train("-I", SCRIPT, "1")], "-I, -E and -S"),
        ([train("-c", "import torch")], "torch was imported, and nothing was trained with it"),
    ],
)
def test_a_command_of_which_nothing_is_captured_is_told_why(
    tmp_path: Path, lines: list[str], message: str
) -> None:
    done = stepwatch(tmp_path, *FINE, "--", "bash", shell(tmp_path, *lines))
    assert done.returncode == 2
    assert "out: the script saved no step, so nothing was evaluated" in done.stderr
    assert message in done.stderr


def test_the_alias_for_the_original_works_behind_a_shell(tmp_path: Path) -> None:
    smdebug = SCRIPTS / "smdebug_script.py"
    line = train("-m", "rule_runtime.smdebug_alias", smdebug, "12")
    done = stepwatch(tmp_path, *FINE, "--", "bash", shell(tmp_path, line))
    assert done.returncode == 0, done.stderr
    assert create_trial(str(tmp_path / "out")).steps() == [0, 10]


def test_nothing_stays_in_the_environment_of_who_runs_it(tmp_path: Path) -> None:
    before = dict(os.environ)
    status, _ = invoke("run", "--out-dir", tmp_path / "out", "--", "bash", "-c", "true")
    assert status == 2
    assert dict(os.environ) == before
