"""`stepwatch tensors`, `plot`, `compare`, `download` and `rules explain`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hook_layer.format.paths import END_MARKER
from hook_layer.storage.local import LocalStore
from rule_runtime import create_trial
from tests.rule_runtime.cli.invoking import invoke, invoke_json, trial_in


def train(folder: Path, *, steps: int = 6, differs_from: int = 99, extra: str = "") -> None:
    trial = trial_in(folder)
    trial.collections(gradients=("gradient/a",))
    for step in range(steps):
        value = np.float32([step, 2.0 + (step >= differs_from)])
        tensors = {"gradient/a": value, "loss": np.float32([1 / (step + 1)])}
        trial.step(step, {**tensors, **({extra: value} if extra else {})})
    trial.end()


def test_tensors_are_listed_and_chosen(tmp_path: Path) -> None:
    train(tmp_path / "run")
    status, found = invoke_json("tensors", tmp_path / "run")
    assert status == 0
    assert [each["tensor"] for each in found] == ["gradient/a", "loss"]
    assert found[0]["shape"] == "[2]"
    assert found[0]["type"] == "float32"
    assert "6 (0 to 5)" in found[0]["steps"]
    assert found[0]["collections"] == ["gradients"]
    _, chosen = invoke_json("tensors", tmp_path / "run", "--regex", "^lo")
    assert [each["tensor"] for each in chosen] == ["loss"]
    _, output = invoke("tensors", tmp_path / "run", "--collection", "gradients")
    assert "gradient/a" in output
    assert "1 tensors, 6 steps, 1 workers" in output


@pytest.mark.parametrize("command", ["tensors", "plot"])
def test_a_place_without_a_run_is_told(tmp_path: Path, command: str) -> None:
    status, output = invoke(command, tmp_path / "nothing")
    assert status == 2
    assert "no step of a run is stored there" in output


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    train(tmp_path / "run")
    file = tmp_path / "losses.png"
    status, output = invoke("plot", tmp_path / "run", "--regex", "loss", "--file", file)
    assert (status, output) == (0, f"{file}\n")
    assert file.read_bytes().startswith(b"\x89PNG")
    status, output = invoke("plot", tmp_path / "run", "--regex", "nothing")
    assert status == 2


def test_runs_that_are_the_same(tmp_path: Path) -> None:
    train(tmp_path / "one")
    train(tmp_path / "two")
    status, found = invoke_json("compare", tmp_path / "one", tmp_path / "two")
    assert status == 0
    assert found["is_same"]
    assert {each["num_common"] for each in found["differences"]} == {6}


def test_the_first_step_that_differs_is_told(tmp_path: Path) -> None:
    train(tmp_path / "one")
    train(tmp_path / "two", differs_from=4, extra="mine", steps=8)
    status, found = invoke_json("compare", tmp_path / "one", tmp_path / "two")
    assert status == 1
    first, second = found["differences"]
    assert (first["tensor"], first["first_step"], first["mode"]) == ("gradient/a", 4, "TRAIN")
    assert first["largest"] == pytest.approx(0.5)  # deviations of 1 and 0.5
    assert (second["tensor"], second["first_step"]) == ("loss", None)
    assert (found["only_in_first"], found["only_in_second"]) == ([], ["mine"])
    _, output = invoke("compare", tmp_path / "one", tmp_path / "two")
    assert "TRAIN step 4" in output
    assert "only in the second: mine" in output
    status, _ = invoke("compare", tmp_path / "one", tmp_path / "two", "--regex", "loss")
    assert status == 0
    status, _ = invoke(
        "compare", tmp_path / "one", tmp_path / "two", "--regex", "gradient", "--tolerance", "2"
    )
    assert status == 0


def test_not_a_number_is_the_same_as_itself_and_as_nothing_else(tmp_path: Path) -> None:
    for name, value in (("one", np.nan), ("two", np.nan), ("three", 1.0)):
        trial_in(tmp_path / name).step(0, {"a": [value]})
    assert invoke("compare", tmp_path / "one", tmp_path / "two")[0] == 0
    status, found = invoke_json("compare", tmp_path / "one", tmp_path / "three")
    assert status == 1
    assert found["differences"][0]["largest"] == "Infinity"


def test_a_run_that_goes_on_is_copied_piece_by_piece(tmp_path: Path) -> None:
    source, copy = tmp_path / "run", tmp_path / "copy"
    trial = trial_in(source)
    for step in range(3):
        trial.step(step, {"a": [step]})
    assert invoke_json("download", source, copy)[1] == {
        "num_files": 3,
        "num_new": 3,
        "has_ended": False,
    }
    trial.step(3, {"a": [3]})
    trial.end()
    status, output = invoke("download", source, copy)
    assert (status, output) == (
        0,
        f"{copy}: 4 files of steps, 1 of them new; the training has ended\n",
    )
    copied = create_trial(str(copy))
    assert [float(value[0]) for value in copied.tensor("a").values().values()] == [0, 1, 2, 3]
    assert copied.loaded_all_steps


def test_some_steps_are_copied(tmp_path: Path) -> None:
    train(tmp_path / "run")
    status, _ = invoke(
        "download", tmp_path / "run", tmp_path / "copy", "--first-step", 2, "--last-step", 3
    )
    assert status == 0
    assert create_trial(str(tmp_path / "copy")).steps() == [2, 3]


def test_a_copy_into_another_run_is_refused(tmp_path: Path) -> None:
    train(tmp_path / "run")
    for name, run in (("run", "A"), ("copy", "B")):
        content = {"SchemaVersion": 1, "TrainingJobName": "job", "RunId": run}
        LocalStore(tmp_path / name).put("job.json", json.dumps(content).encode())
    status, output = invoke("download", tmp_path / "run", tmp_path / "copy")
    assert status == 2
    assert "holds another run, B; give an empty folder for the run A" in output
    assert not LocalStore(tmp_path / "copy").exists(END_MARKER)


def test_a_rule_is_explained() -> None:
    status, output = invoke("rules", "explain", "vanishing_gradient")
    assert status == 0
    assert "How it decides:" in output
    assert "Asks the hook to save:\n    gradients" in output
    status, found = invoke_json("rules", "explain", "VanishingGradient")
    assert found["parameters"][0]["name"] == "threshold"
    assert found["packs"] == ["original"]
    status, output = invoke("rules", "explain", "vanishing")
    assert status == 2
    assert "did you mean 'VanishingGradient'?" in output
    _, rules = invoke_json("rules")
    assert {"VanishingGradient", "SimilarAcrossRuns"} <= {each["rule"] for each in rules}
