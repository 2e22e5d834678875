"""`stepwatch compare`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hook_layer.format.reductions import reduction_tensor_name
from hook_layer.storage.local import LocalStore
from hook_layer.storage.memory import MemoryStore
from rule_runtime.testing import TrialBuilder
from rule_runtime.trial.run_settings import differing_settings, read_environment, settings_of
from tests.rule_runtime.cli.invoking import invoke, invoke_json, train, trial_in
from tests.tables import table


def test_runs_that_are_the_same(tmp_path: Path) -> None:
    train(tmp_path / "one")
    train(tmp_path / "two")
    status, found = invoke_json("compare", tmp_path / "one", tmp_path / "two")
    assert status == 0
    assert found["is_same"]
    assert {each["num_common"] for each in found["differences"]} == {6}


def test_of_what_differs_at_one_step_the_first_of_the_execution_is_reported_first(
    tmp_path: Path,
) -> None:
    names = ("stem.weight", "stem_output_0", "head_output_0", "Loss_output_0", "gradient/head")
    for folder, broken_at in (("one", 99), ("two", 2)):
        trial = trial_in(tmp_path / folder)
        for step in range(4):
            value = np.float32([np.nan if step >= broken_at else 1.0])
            trial.step(step, dict.fromkeys(names, value))
        trial.end()
    _, found = invoke_json("compare", tmp_path / "one", tmp_path / "two")
    assert [each["tensor"] for each in found["differences"]] == list(names)


def test_the_first_step_that_differs_is_reported(tmp_path: Path) -> None:
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


def test_what_one_run_did_not_save_is_no_difference(tmp_path: Path) -> None:
    value = np.float32([3.0, -4.0])
    mean, largest = 3.5, 3.0
    for name, reductions in (("all", None), ("few", (mean, largest)), ("other", (mean, 9.0))):
        trial = TrialBuilder(LocalStore(tmp_path / name), run=None)
        tensors = {"w": value}
        if reductions is not None:
            kinds = (("mean", True), ("max", False))
            tensors = {
                reduction_tensor_name("w", kind, absolute=is_absolute): np.float32(number)
                for (kind, is_absolute), number in zip(kinds, reductions, strict=True)
            }
        trial.step(0, tensors)
    status, found = invoke_json("compare", tmp_path / "all", tmp_path / "few")
    assert status == 0
    (reported,) = found["differences"]
    assert reported["not_comparable"] == ["size", "min", "mean", "std", "l2"]
    assert reported["largest"] == 0
    status, output = invoke("compare", tmp_path / "few", tmp_path / "all")
    assert status == 0
    assert "not comparable, as only one run has it: size, min, mean, std, l2 of: w" in output
    status, found = invoke_json("compare", tmp_path / "all", tmp_path / "other")
    assert status == 1
    assert found["differences"][0]["largest"] == pytest.approx(2 / 3)


def test_that_there_is_a_nan_is_a_difference_though_reductions_tell_it(tmp_path: Path) -> None:
    name = reduction_tensor_name("w", "mean", absolute=True)
    for folder, tensors in (
        ("values", {"w": np.float32([1.0, np.nan, np.nan])}),
        ("reductions", {name: np.float32(np.nan)}),
        ("finite", {"w": np.float32([1.0, 2.0, 3.0])}),
    ):
        TrialBuilder(LocalStore(tmp_path / folder), run=None).step(0, tensors)
    assert invoke("compare", tmp_path / "values", tmp_path / "reductions")[0] == 0
    status, found = invoke_json("compare", tmp_path / "reductions", tmp_path / "finite")
    assert (status, found["differences"][0]["largest"]) == (1, "Infinity")


def test_of_many_tensors_that_one_run_lacks_some_are_named(tmp_path: Path) -> None:
    one, other = np.ones(2, np.float32), [f"mine_{at:02}" for at in range(25)]
    trial_in(tmp_path / "one").step(0, {"a": one, "b": one})
    trial_in(tmp_path / "two").step(0, {"a": one, **dict.fromkeys(other, one)})
    _, output = invoke("compare", tmp_path / "one", tmp_path / "two")
    assert "only in the first: b\n" in output
    assert f"only in the second: {', '.join(other[:10])}, 15 more; --json has all\n" in output
    _, found = invoke_json("compare", tmp_path / "one", tmp_path / "two")
    assert found["only_in_second"] == other


ENVIRONMENT = {
    "Command": ["python", "train.py", "--lr=0.1", "--sizes", "1", "2", "--amp", "seed=1", "-1"],
    "Git": {"Commit": "a" * 40, "IsDirty": False},
    "Packages": {"torch": "2.5.0", "numpy": "2.0.0"},
    "Python": "3.11.7",
    "Gpus": [],
    "Future": [{}],
}
OTHER = {
    "Command": ["python", "train.py", "--lr", "0.2", "--sizes", "1", "2"],
    "Git": {"Commit": "b" * 40, "IsDirty": True},
    "Packages": {"torch": "2.6.0", "numpy": "2.0.0"},
    "Python": "3.11.7",
    "Gpus": ["\x1b[2J"],
}


def store_environments(folder: Path, *contents: str) -> None:
    for name, content in zip(("one", "two"), contents, strict=True):
        trial = trial_in(folder / name)
        trial.collections(losses=("loss",))
        for step, loss in enumerate([2.0, 0.5] if name == "one" else [2.0, 4.0, np.nan, 1.0]):
            trial.step(step, {"loss": [loss]})
        trial.end()
        (folder / name / "environment.json").write_text(content)


def test_settings_and_metrics_come_first(tmp_path: Path) -> None:
    store_environments(tmp_path, json.dumps(ENVIRONMENT), json.dumps(OTHER))
    status, found = invoke_json("compare", tmp_path / "one", tmp_path / "two")
    assert status == 1
    assert list(found)[:3] == ["is_same", "settings", "metrics"]
    assert [tuple(each.values()) for each in found["settings"]] == [
        ("--lr", "0.1", "0.2"),
        ("--amp", "seed=1 -1", None),
        ("commit", "a" * 40, "b" * 40),
        ("uncommitted changes", "false", "true"),
        ("package torch", "2.5.0", "2.6.0"),
        ("GPUs", "[]", '["\\u001b[2J"]'),
    ]
    first, second = ({"step": 1, "last": 0.5, "lowest": 0.5, "highest": 2.0},
                     {"step": 3, "last": 1.0, "lowest": 1.0, "highest": 4.0})  # fmt: skip
    metric = {"metric": "loss", "mode": "TRAIN", "first": first, "second": second}
    assert found["metrics"] == [metric]
    _, output = invoke("compare", tmp_path / "one", tmp_path / "two")
    places = [output.index(text) for text in ("--lr", "loss (TRAIN)", "relative")]
    assert places == sorted(places)
    assert "│ 0.5   │ 1      │ +1 " in output
    _, output = invoke("compare", tmp_path / "one", tmp_path / "one")
    assert output.startswith("settings: the same\n")


@table(
    "content, reason",
    {
        "cut": ('{"Command": [', "no JSON"),
        "no object": ("[]", "a JSON object expected, list found"),
        "too long": (" " * (4 << 20) + "{}", "longer than the 4194304 bytes allowed"),
        "empty": ("{}", "has no environment.json"),
    },
)
def test_a_bad_environment_file_leaves_the_tensors_compared(
    content: str, reason: str, tmp_path: Path
) -> None:
    store_environments(tmp_path, json.dumps(ENVIRONMENT), content)
    status, output = invoke("compare", tmp_path / "one", tmp_path / "two")
    assert (status, output.startswith("settings are not compared: ")) == (1, True)
    assert reason in output
    assert invoke_json("compare", tmp_path / "one", tmp_path / "two")[1]["settings"] is None


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=12,
)


@given(content=st.dictionaries(st.sampled_from([*ENVIRONMENT, "Host"]), JSON_VALUES))
def test_any_json_is_read_as_texts(content: dict[str, Any]) -> None:
    store = MemoryStore()
    store.put("environment.json", json.dumps(content).encode())
    settings = settings_of(read_environment(store))
    assert all(isinstance(text, str) for text in settings.values())
    assert differing_settings(settings, settings) == []
