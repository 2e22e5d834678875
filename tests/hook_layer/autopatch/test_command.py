"""Scripts without a hook, run by `python -m hook_layer` as a user would."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from hook_layer.autopatch.command import MISTAKE
from hook_layer.format.modes import ModeKeys
from hook_layer.process.uncaught_errors import STOPPED
from rule_runtime import create_trial
from tests.hook_layer.autopatch.watched_scripts import (
    ROOT,
    SCRIPTS,
    TORCH,
    XGBOOST,
    ScriptRuns,
    configuration,
    run,
)


@pytest.mark.parametrize(
    ("options", "loss"),
    [
        ([], "CrossEntropyLoss_output_0"),
        (["--compile", "wrapped"], "CrossEntropyLoss_output_0"),
        (["--compile", "in_place", "--loss", "own"], "FocalLoss_output_0"),
        (["--loss", "function"], "CrossEntropyLoss_output_0"),
        (["--parallel"], "CrossEntropyLoss_output_0"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_torch_script_computes_the_same_and_its_tensors_are_saved(
    runs: ScriptRuns, tmp_path: Path, options: list[str], loss: str
) -> None:
    collections = ["weights", "gradients"]
    trial, log = runs.trial(tmp_path, TORCH, *options, collections=collections)
    assert "another one" not in log
    assert {"Net_hidden.weight", "gradient/Net_head.bias", loss} <= set(trial.tensor_names())
    assert trial.steps() == list(range(10))
    assert trial.tensor(loss).steps(mode=ModeKeys.TRAIN) == list(range(8))
    assert trial.tensor(loss).steps(mode=ModeKeys.EVAL) == [0, 1]
    assert trial.loaded_all_steps


def test_the_model_is_the_one_that_is_trained(runs: ScriptRuns, tmp_path: Path) -> None:
    trial, log = runs.trial(tmp_path, "features_script.py", collections=["gradients"])
    assert log.count("a Linear of torch.jit cannot have hooks") == 1
    assert trial.steps() == [0, 1, 2, 3]
    assert trial.tensor("gradient/Head_weight").steps() == [0, 1, 2, 3]


def test_modules_outside_the_model_stay_unchanged_and_hide_no_loss(
    runs: ScriptRuns, tmp_path: Path
) -> None:
    printed = runs.plain("beside_script.py").stdout
    assert "0 replicas are left\n[0, 0] hooks beside the model" in printed
    trial, _ = runs.trial(tmp_path, "beside_script.py")
    assert trial.tensor("MSELoss_output_0").steps() == [0, 1, 2, 3, 4]


def test_only_the_first_fold_is_watched(runs: ScriptRuns, tmp_path: Path) -> None:
    trial, _ = runs.trial(tmp_path, "folds_script.py", collections=["weights"])
    assert trial.steps() == [0, 1, 2]
    assert trial.loaded_all_steps
    losses = [name for name in trial.tensor_names() if "Loss" in name]
    assert losses == ["MSELoss_output_0"]
    assert "Net_head.weight" in trial.tensor_names()


def test_of_two_models_both_are_watched(runs: ScriptRuns, tmp_path: Path) -> None:
    command = ["two_models_script.py", "5"]
    trial, _ = runs.trial(tmp_path, *command, collections=["weights"])
    assert trial.steps() == [0, 1, 2, 3]  # the last one waited for the first model
    weights = {name for name in trial.tensor_names() if "weight" in name}
    assert weights == {"First_weight", "Second_weight"}


def test_a_collection_without_tensors_breaks_no_script(runs: ScriptRuns, tmp_path: Path) -> None:
    config = configuration(tmp_path, tmp_path / "tensors", {"CollectionName": "mine"})
    plain = runs.plain(XGBOOST, "own")
    done = run(["-m", "hook_layer", "--config", config, XGBOOST, "own"])
    assert (done.returncode, done.stdout) == (0, plain.stdout)
    assert "Collection mine has not been configured" in done.stderr
    assert "train-rmse" in create_trial(str(tmp_path / "tensors")).tensor_names()


@pytest.mark.parametrize("order", ["torch first", "xgboost first"])
def test_a_process_gets_one_hook_whatever_it_trains_with(
    runs: ScriptRuns, tmp_path: Path, order: str
) -> None:
    config = configuration(tmp_path, tmp_path / "tensors")
    arguments = ["two_frameworks_script.py", order]
    plain = runs.plain(*arguments)
    log = tmp_path / "log.txt"
    done = run(
        ["-m", "hook_layer", "--config", config, *arguments],
        SMDEBUG_LOG_LEVEL="info",
        SMDEBUG_LOG_PATH=str(log),
    )
    assert done.stdout == plain.stdout
    assert done.returncode == 0, done.stderr
    assert log.read_text().count("only the first training of a process is watched") == 1
    names = set(create_trial(str(tmp_path / "tensors")).tensor_names())
    assert ("Loss_output_0" in names) == (order == "torch first")
    assert ("train-rmse" in names) == (order == "xgboost first")


@pytest.mark.parametrize("start", [["as_python_script.py"], ["-m", "scripts.as_python_script"]])
@pytest.mark.parametrize("switches", [[], ["-P"]], ids=["", "-P"])
def test_the_script_sees_the_same_python(
    tmp_path: Path, start: list[str], switches: list[str]
) -> None:
    if switches and sys.version_info < (3, 11):
        pytest.skip("this Python has no -P")
    command = [*start, "--", "--loud"]
    cwd = SCRIPTS.parent if start[0] == "-m" else SCRIPTS
    libraries = os.pathsep.join([str(tmp_path), str(ROOT), str(SCRIPTS.parent)])
    plain = run([*switches, *command], cwd, PYTHONPATH=libraries)
    hooked: list[str | Path] = [
        *switches,
        "-m",
        "hook_layer",
        "--out-dir",
        tmp_path / "x",
        *command,
    ]
    done = run(hooked, cwd, PYTHONPATH=libraries)
    assert done.returncode == plain.returncode == 0, done.stderr + plain.stderr
    assert json.loads(done.stdout) == json.loads(plain.stdout)


def test_arguments_after_the_script_are_the_scripts(tmp_path: Path) -> None:
    done = run(["-m", "hook_layer", "--out-dir", tmp_path / "x", TORCH, "--config", "theirs"])
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["config"] == "theirs"
    assert said["arguments"] == ["--config", "theirs"]


def test_a_hook_of_the_script_is_the_only_one(tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    done = run(
        ["-m", "hook_layer", "--config", configuration(tmp_path, other), "hooked_script.py", own]
    )
    assert done.returncode == 0, done.stderr
    assert create_trial(str(own)).steps() == [0, 1, 2]
    assert not other.exists()


def test_without_a_configuration_the_script_runs_as_it_is(runs: ScriptRuns) -> None:
    done = run(["-m", "hook_layer", TORCH], STEPWATCH_CONFIG="")
    assert done.returncode == 0
    assert "runs without a hook" in done.stderr
    assert done.stdout == runs.plain(TORCH).stdout


def test_the_environment_may_name_the_folder_or_the_file(tmp_path: Path) -> None:
    named = run(["-m", "hook_layer", XGBOOST, "own"], STEPWATCH_OUT_DIR=str(tmp_path / "a"))
    assert named.returncode == 0, named.stderr
    assert "without a hook" not in named.stderr
    assert create_trial(str(tmp_path / "a")).steps()
    config = configuration(tmp_path, tmp_path / "b")
    configured = run(["-m", "hook_layer", XGBOOST, "own"], STEPWATCH_CONFIG=str(config))
    assert configured.returncode == 0, configured.stderr
    assert create_trial(str(tmp_path / "b")).steps()


def test_the_command_line_wins_over_the_environment(tmp_path: Path) -> None:
    config = configuration(tmp_path, tmp_path / "mine")
    done = run(
        ["-m", "hook_layer", "--config", config, XGBOOST, "own"],
        STEPWATCH_OUT_DIR=str(tmp_path / "other"),
    )
    assert done.returncode == 0, done.stderr
    assert create_trial(str(tmp_path / "mine")).steps()
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("is_named_by", ["option", "environment"])
def test_a_folder_that_cannot_be_written_to_is_reported_before_the_training(
    tmp_path: Path, is_named_by: str
) -> None:
    (tmp_path / "file").write_text("")
    place = str(tmp_path / "file" / "tensors")
    if is_named_by == "option":
        done = run(["-m", "hook_layer", "--out-dir", place, TORCH])
    else:
        done = run(["-m", "hook_layer", TORCH], STEPWATCH_OUT_DIR=place)
    assert done.returncode == MISTAKE
    assert done.stdout == ""
    assert "a part of the path is a file; give another folder" in done.stderr
    assert "Traceback" not in done.stderr


FULL_AT_FIRST = """
import errno, sys
from hook_layer.storage import local

create_file = local.create_file

def on_a_full_disk(path):
    local.create_file = create_file
    raise OSError(errno.ENOSPC, "No space left on device")

local.create_file = on_a_full_disk
from hook_layer.autopatch.command import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_disk_that_is_full_for_a_moment_is_reported_and_the_script_trains(tmp_path: Path) -> None:
    place = str(tmp_path / "tensors")
    done = run(["-c", FULL_AT_FIRST, "--out-dir", place, TORCH])
    assert done.returncode == 0, done.stderr
    assert "nothing can be written for now" in done.stderr
    assert "No space left on device" in done.stderr
    assert create_trial(place).steps()


def test_the_kill_switch(tmp_path: Path) -> None:
    config = configuration(tmp_path, tmp_path / "tensors")
    done = run(["-m", "hook_layer", "--config", config, TORCH], USE_SMDEBUG="0")
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "tensors").exists()


def test_a_stop_request_ends_the_script_with_a_status_of_its_own(tmp_path: Path) -> None:
    out_dir = tmp_path / "tensors"
    config = configuration(tmp_path, out_dir)
    done = run(["-m", "hook_layer", "--config", config, TORCH, "--stop-in", out_dir])
    assert done.returncode == STOPPED, done.stderr
    assert "the loss is bad" in done.stderr
    assert "Traceback" not in done.stderr
    assert create_trial(str(out_dir)).steps()[:3] == [0, 1, 2]


def test_a_script_whose_training_the_framework_ends_keeps_its_status(tmp_path: Path) -> None:
    out_dir = tmp_path / "tensors"
    config = configuration(tmp_path, out_dir)
    done = run(["-m", "hook_layer", "--config", config, "boosting_script.py", out_dir])
    assert done.returncode == 0, done.stderr
    assert done.stdout == "saved the model\n"
    assert "a stop was requested: the loss is bad" in done.stderr
    assert len(create_trial(str(out_dir)).steps()) < 100_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing.py"], "nothing.py: the script does not exist"),
        (["--config", "nothing.json", TORCH], "nothing.json does not exist"),
    ],
)
def test_mistakes_of_the_command_line(arguments: list[str], message: str) -> None:
    done = run(["-m", "hook_layer", *arguments])
    assert done.returncode == MISTAKE
    assert message in done.stderr


def test_a_mistake_in_the_configuration_comes_before_the_script(tmp_path: Path) -> None:
    config = tmp_path / "stepwatch.json"
    config.write_text('{"DebugHookConfig": {"HookParameters": {"save_interval": "0"}}}')
    done = run(["-m", "hook_layer", "--config", config, TORCH])
    assert done.returncode == MISTAKE
    assert "save_interval" in done.stderr
    assert not done.stdout


def test_exit_status_spawned_processes_and_modules_are_as_without_us(tmp_path: Path) -> None:
    for start in (["spawning_script.py"], ["-m", "spawning_script"]):
        done = run(["-m", "hook_layer", "--out-dir", tmp_path / "x", *start])
        assert (done.returncode, done.stdout) == (7, "[2, 4]\n"), done.stderr


@pytest.mark.parametrize("order", [("own", "sklearn"), ("sklearn", "own")])
def test_the_first_training_of_xgboost_is_watched(
    runs: ScriptRuns, tmp_path: Path, order: tuple[str, str]
) -> None:
    collections = ["metrics", "predictions", "feature_importance", "hyperparameters"]
    trial, log = runs.trial(tmp_path, XGBOOST, *order, collections=collections)
    assert log.count("only the first training of a process is watched") == 1
    metric = {"own": "train-rmse", "sklearn": "validation_0-rmse"}[order[0]]
    saved = [float(trial.tensor(metric).value(step)[0]) for step in trial.steps()]
    printed = json.loads(runs.plain(XGBOOST, *order).stdout.splitlines()[-1])
    assert saved == pytest.approx(printed[0])
    assert {"predictions", "hyperparameters/max_depth"} <= set(trial.tensor_names())


def test_passes_of_one_step_of_the_optimizer_are_one_step(runs: ScriptRuns, tmp_path: Path) -> None:
    trial, log = runs.trial(tmp_path, "pairs_script.py", collections=["gradients"])
    assert trial.steps() == trial.steps(mode=ModeKeys.TRAIN) == [0, 1, 2, 3, 4]
    assert trial.tensor("gradient/Linear_weight").steps() == [0, 1, 2, 3, 4]
    assert trial.tensor("Loss_output_1").steps() == [0, 1, 2, 3, 4]
    assert "each call counts as a step" not in log
