"""The start-up file, in a folder that Python takes for site-packages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hook_layer.autopatch.startup_file import is_on, switch_off, switch_on
from rule_runtime import create_trial
from tests.hook_layer.autopatch.watched_scripts import ROOT, SCRIPTS, TORCH, configuration, run

START = "import site, sys; site.addsitedir(sys.argv.pop(1)); "
RUN = START + "import runpy; runpy.run_path(sys.argv.pop(1), run_name='__main__')"


def test_on_and_off(tmp_path: Path) -> None:
    assert not is_on(tmp_path)
    file = switch_on(tmp_path)
    assert is_on(tmp_path)
    assert file.parent == tmp_path
    assert switch_off(tmp_path) == file
    assert not is_on(tmp_path)
    switch_off(tmp_path)


def test_scripts_are_watched_where_a_configuration_is_named(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    switch_on(site)
    config = configuration(tmp_path, tmp_path / "tensors")
    done = run(["-c", RUN, site, SCRIPTS / TORCH], STEPWATCH_OUT_DIR=str(tmp_path / "tensors"))
    assert done.returncode == 0, done.stderr
    assert create_trial(str(tmp_path / "tensors")).steps()
    named = run(["-c", RUN, site, SCRIPTS / TORCH], SMDEBUG_CONFIG_FILE_PATH=str(config))
    assert named.stdout == done.stdout


@pytest.mark.parametrize(
    "environment", [{}, {"SMDEBUG_CONFIG_FILE_PATH": "nothing.json"}, {"TRAINING_JOB_NAME": "job"}]
)
def test_nothing_is_imported_where_none_is_found(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    switch_on(tmp_path)
    shown = START + "import xgboost; print([m for m in sys.modules if m == 'hook_layer.xgboost'])"
    done = run(["-c", shown, tmp_path], **environment)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_a_file_elsewhere_is_read_when_a_training_begins_and_not_before(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    switch_on(site)
    elsewhere = "memory://nowhere/stepwatch.json"
    other = run(["-c", RUN, site, SCRIPTS / "as_python_script.py"], STEPWATCH_CONFIG=elsewhere)
    assert (other.returncode, other.stderr) == (0, "")
    training = run(["-c", RUN, site, SCRIPTS / "folds_script.py"], STEPWATCH_CONFIG=elsewhere)
    assert training.returncode == 0
    assert training.stderr.count("no hook is made, and the script runs without one") == 1
    assert elsewhere in training.stderr


def test_a_broken_configuration_breaks_no_script(tmp_path: Path) -> None:
    switch_on(tmp_path)
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    done = run(
        ["-c", START + "import torch, xgboost; sys.exit(7)", tmp_path],
        SMDEBUG_CONFIG_FILE_PATH=str(broken),
    )
    assert done.returncode == 7
    assert done.stderr.count("broken.json") == 1


def test_an_ordinary_start_costs_no_import(tmp_path: Path) -> None:
    file = switch_on(tmp_path)
    shown = f"import sys\n{file.read_text()}print('hook_layer' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-I", "-c", shown], capture_output=True, text=True, env={}, check=True
    )
    assert done.stdout == "False\n"


@pytest.mark.parametrize(
    "command", [["-m", "hook_layer"], ["-Bum", "hook_layer"], ["-mhook_layer"]]
)
def test_the_command_looks_after_itself(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "sitecustomize.py").write_text("import hook_layer.autopatch.startup\n")
    out_dir, other = tmp_path / "tensors", tmp_path / "other"
    done = run(
        [*command, "--out-dir", out_dir, "features_script.py"],
        PYTHONPATH=os.pathsep.join([str(tmp_path), str(ROOT)]),
        STEPWATCH_OUT_DIR=str(other),
    )
    assert done.returncode == 0, done.stderr
    assert create_trial(str(out_dir)).steps()
    assert not other.exists()
