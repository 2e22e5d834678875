"""`stepwatch tensors`, `plot`, `download` and `rules explain`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hook_layer.format.modes import ModeKeys
from hook_layer.format.paths import END_MARKER
from hook_layer.storage.local import LocalStore
from rule_runtime import create_trial
from rule_runtime.configuration.packs import PACKS
from rule_runtime.engine.registry import available_rules
from tests.rule_runtime.cli.invoking import invoke, invoke_json, train, trial_in
from tests.tables import table


def test_tensors_are_listed_and_chosen(tmp_path: Path) -> None:
    train(tmp_path / "run")
    status, found = invoke_json("tensors", tmp_path / "run")
    assert status == 0
    assert [each["tensor"] for each in found] == ["gradient/a", "loss"]
    assert found[0]["shape"] == [2]
    assert found[0]["type"] == "float32"
    assert found[0]["steps"] == {"TRAIN": {"count": 6, "first": 0, "last": 5}}
    assert found[0]["collections"] == ["gradients"]
    _, chosen = invoke_json("tensors", tmp_path / "run", "--regex", "^lo")
    assert [each["tensor"] for each in chosen] == ["loss"]
    _, output = invoke("tensors", tmp_path / "run", "--collection", "gradients")
    assert "TRAIN 6 (0 to 5)" in output
    assert "gradient/a" in output
    assert "1 tensor, 6 steps, 1 worker" in output


def test_of_many_tensors_each_collection_has_a_line(tmp_path: Path) -> None:
    trial = trial_in(tmp_path / "run")
    many = {f"gradient/layer{number}": np.float32([1.0]) for number in range(40)}
    trial.collections(gradients=tuple(many), losses=("loss",))
    for step in range(4):
        saved = many if step % 2 == 0 else {}
        trial.step(step, {**saved, "loss": np.float32([1.0]), "mine": np.float32([1.0])})
    trial.end()
    status, reported = invoke("tensors", tmp_path / "run")
    assert status == 0
    (gradients,) = [line for line in reported.splitlines() if " gradients " in line]
    assert " 40 " in gradients
    assert "TRAIN 2 (0 to 2)" in gradients
    assert "gradient/layer0 " in gradients
    assert "gradient/layer7" not in reported
    (losses,) = [line for line in reported.splitlines() if " losses " in line]
    assert "TRAIN 4 (0 to 3)" in losses
    (others,) = [line for line in reported.splitlines() if " in no collection " in line]
    assert "mine" in others
    assert "42 tensors, 4 steps, 1 worker" in reported
    assert "--all, --regex and --collection list the tensors" in reported
    every = invoke("tensors", tmp_path / "run", "--all")[1]
    assert "gradient/layer7" in every
    assert "list the tensors" not in every
    assert len(invoke_json("tensors", tmp_path / "run")[1]) == 42


def test_steps_are_counted_where_modes_were_never_set(tmp_path: Path) -> None:
    trial = trial_in(tmp_path / "run")
    trial.collections(losses=("train-rmse",))
    for step in (0, 10, 20):
        trial.step(step, {"train-rmse": np.float32([1.0])}, mode=ModeKeys.GLOBAL)
    trial.end()
    assert "3 (0 to 20)" in invoke("tensors", tmp_path / "run")[1]


@pytest.mark.parametrize("command", ["tensors", "plot"])
def test_a_place_without_a_run_is_reported(tmp_path: Path, command: str) -> None:
    status, output = invoke(command, tmp_path / "nothing")
    assert status == 2
    assert "holds no saved step of a run" in output


@pytest.mark.parametrize("command", ["tensors", "plot", "compare"])
def test_an_expression_that_is_none_is_named(tmp_path: Path, command: str) -> None:
    train(tmp_path / "run")
    runs = [tmp_path / "run"] * (2 if command == "compare" else 1)
    status, output = invoke(command, *runs, "--regex", "(")
    assert status == 2
    assert "'(' is not a regular expression: missing ), unterminated subpattern" in output


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("tensors", "--regex"),
        ("tensors", "--collection"),
        ("compare", "--regex"),
        ("plot", "--regex"),
        ("plot", "--collection"),
    ],
)
def test_a_choice_that_fits_nothing_is_reported(tmp_path: Path, command: str, option: str) -> None:
    train(tmp_path / "run")
    runs = [tmp_path / "run"] * (2 if command == "compare" else 1)
    status, output = invoke(command, *runs, option, "zzz")
    assert status == 2
    assert "zzz" in output


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    train(tmp_path / "run")
    file = tmp_path / "losses.png"
    status, output = invoke("plot", tmp_path / "run", "--regex", "loss", "--output-file", file)
    assert (status, output) == (0, f"{file}\n")
    assert file.read_bytes().startswith(b"\x89PNG")
    status, reported = invoke_json(
        "plot", tmp_path / "run", "--regex", "loss", "-f", tmp_path / "new" / "losses.svg"
    )
    assert (status, reported) == (0, {"plot": str(tmp_path / "new" / "losses.svg")})
    assert (tmp_path / "new" / "losses.svg").exists()
    status, output = invoke("plot", tmp_path / "run", "--regex", "loss", "-f", tmp_path)
    assert status == 2
    assert "is a folder; give the name of a file" in output.replace("\n", " ")
    status, output = invoke("plot", tmp_path / "run", "--regex", "nothing")
    assert status == 2


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


def test_several_runs_are_drawn_with_the_shortest_names(tmp_path: Path) -> None:
    for name in ("a/run-1", "b/run-1"):
        train(tmp_path / name)
    file = tmp_path / "both.svg"
    runs = (tmp_path / "a/run-1", f"{tmp_path}/b/run-1/")
    assert invoke("plot", *runs, "-e", "loss", "-f", file) == (0, f"{file}\n")
    assert [name in file.read_text() for name in ("a/run-1: loss", "b/run-1: loss")] == [True] * 2
    status, output = invoke("plot", *runs, tmp_path / "nothing", "-f", file)
    assert (status, "holds no saved step of a run" in output) == (2, True)


def test_a_copy_into_another_run_is_refused(tmp_path: Path) -> None:
    train(tmp_path / "run")
    for name, run in (("run", "A"), ("copy", "B")):
        content = {"SchemaVersion": 1, "TrainingJobName": "job", "RunId": run}
        LocalStore(tmp_path / name).put("job.json", json.dumps(content).encode())
    status, output = invoke("download", tmp_path / "run", tmp_path / "copy")
    assert status == 2
    assert "holds another run, B; give an empty folder for the run A" in output
    assert not LocalStore(tmp_path / "copy").exists(END_MARKER)


@pytest.mark.parametrize("is_folder", [False, True])
def test_download_follows_no_link(tmp_path: Path, *, is_folder: bool) -> None:
    trial = trial_in(tmp_path / "run")
    trial.step(0, {"a": [1.0]})
    linked = tmp_path / "run" / ("collections" if is_folder else "job.json")
    secret = tmp_path / "elsewhere" / "000000000" / "worker_0_collections.json"
    secret.parent.mkdir(parents=True)
    secret.write_text("secret")
    linked.symlink_to(tmp_path / "elsewhere" if is_folder else secret)
    status, output = invoke("download", tmp_path / "run", tmp_path / "copy")
    assert status == 2
    assert "links are not followed" in output
    copied = [path for path in (tmp_path / "copy").rglob("*") if path.is_file()]
    assert not [path for path in copied if "secret" in path.read_text(errors="ignore")]


def test_a_rule_is_explained() -> None:
    status, output = invoke("rules", "explain", "vanishing_gradient")
    assert status == 0
    assert "How it decides:" in output
    assert "    threshold = 1e-07" in output
    summary = available_rules()["VanishingGradient"].summary()
    assert " ".join(output.split()).count(summary) == 1
    assert "Asks the hook to save:\n    gradients" in output
    status, found = invoke_json("rules", "explain", "VanishingGradient")
    assert found["parameters"][0]["name"] == "threshold"
    assert found["packs"] == ["original", "recommended"]
    assert "Caution" not in output
    assert "Caution: with its defaults" in invoke("rules", "explain", "loss_not_decreasing")[1]
    status, output = invoke("rules", "explain", "vanishing")
    assert status == 2
    assert "did you mean 'VanishingGradient'?" in output
    _, rules = invoke_json("rules")
    assert {"VanishingGradient", "SimilarAcrossRuns"} <= {each["rule"] for each in rules}


OWN_RULES = """
import stepwatch
from smdebug.rules import Rule

class Mine(stepwatch.Rule):
    \"\"\"Finds mine.\"\"\"
    bound: float
    collections = ("gradients",)
    def check(self, step, memory):
        return stepwatch.Passed()

class Theirs(Rule):
    def __init__(self, base_trial, bound=10.0):
        super().__init__(base_trial)
    def invoke_at_step(self, step):
        return False

class NonFinite(Mine):
    caution = "\\x1b[2J"
    bound: Nothing = 1
"""


@table(
    "name, expected",
    {
        "a required parameter": ("mine.py:Mine", (0, "bound (required)", "    gradients")),
        "a rule for smdebug": (
            "mine.py:Theirs",
            (0, "no docstring", "bound = 10.0", "Packs:\n    none"),
        ),
        "a mistake": (
            "mine.py:NonFinite",
            (2, "an annotation of NonFinite is wrong", "mine.py, line 20"),
        ),
        "no name": ("mine.py", (2, "mine.py:CLASS; it has Mine, Theirs, NonFinite")),
        "another name": ("mine.py:Min", (2, "did you mean 'Mine'?")),
        "parameters": ("mine.py:Mine:bound=3", (2, "there is no rule 'Mine:bound=3'")),
        "no file": ("no.py:Mine", (2, "custom rule 'no.py': there is no such file")),
        "an URI": ("s3://b/no.py:Mine", (2, "only local files are allowed")),
    },
)
def test_a_rule_of_a_file_is_explained(
    name: str, expected: tuple[int, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(OWN_RULES)
    status, output = invoke("rules", "explain", name)
    assert (status, [text for text in expected[1:] if text not in output]) == (expected[0], [])
    if not status:
        described = invoke_json("rules", "explain", name)[1]
        assert (described["rule"], described["packs"]) == (name.partition(":")[2], [])


def test_rules_of_the_recommended_pack_are_marked() -> None:
    status, output = invoke("rules")
    assert status == 0
    marked = {line.split()[0] for line in output.splitlines() if line.split()[1:2] == ["*"]}
    assert marked == set(PACKS["recommended"].parameters)
    assert output.endswith("* in the pack recommended, the default; other packs: original\n")
    assert "NonFinite *" in invoke("rules", "--all")[1]


def test_of_what_is_no_rule_it_says_what_it_is() -> None:
    for name in ("CreateXgboostReport", "create_xgboost_report"):
        status, output = invoke("rules", "explain", name)
        assert status == 2
        assert "is not a rule but a report" in output
        assert "create_trial(path).create_xgboost_report(out_dir)" in output
    status, output = invoke("rules", "explain", "zzz")
    assert status == 2
    assert output == "stepwatch: there is no rule 'zzz'; `stepwatch rules` lists them\n"
