"""XGBoost: the original reads our files, and its own hook writes the same."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_diabetes

from rule_runtime import create_trial
from tests.interop.comparison import assert_same
from tests.interop.environment import OUR_PYTHON, SMDEBUG_PYTHON, run_scripts, xgboost_by_its_name

pytestmark = pytest.mark.other_environment
Seen = Callable[[Path], dict[str, Any]]
TRIALS = ("chosen", "everything", "unasked")
KINDS = ("weight", "gain", "cover", "total_gain", "total_cover")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """What the script writes with the original's hook, and with ours."""
    folder = tmp_path_factory.mktemp("xgboost")
    data = load_diabetes()
    path = folder / "data.npz"
    np.savez(path, features=data.data, labels=data.target, names=data.feature_names)
    theirs, ours = folder / "original", folder / "ours"
    run_scripts(
        (SMDEBUG_PYTHON, "xgboost_script.py", "smdebug.xgboost", path, theirs),
        (OUR_PYTHON, "xgboost_script.py", "hook_layer.xgboost", path, ours),
        path=xgboost_by_its_name(tmp_path_factory.mktemp("names")),
    )
    return theirs, ours


@pytest.mark.parametrize("name", TRIALS)
def test_both_readers_say_the_same_of_our_files(
    folders: tuple[Path, Path], seen_by_smdebug: Seen, seen_by_us: Seen, name: str
) -> None:
    trial = folders[1] / name
    found = seen_by_smdebug(trial)
    assert_same(seen_by_us(trial), copy.deepcopy(found), what="XGBoost, by Stepwatch")
    assert found["loaded_all_steps"]


@pytest.mark.parametrize("name", TRIALS)
def test_our_reader_says_the_same_of_the_originals_files(
    folders: tuple[Path, Path], seen_by_smdebug: Seen, seen_by_us: Seen, name: str
) -> None:
    trial = folders[0] / name
    assert_same(seen_by_us(trial), seen_by_smdebug(trial), what="XGBoost, by the original")


@pytest.mark.parametrize("name", TRIALS)
def test_our_hook_writes_what_the_originals_writes(
    folders: tuple[Path, Path], seen_by_smdebug: Seen, name: str
) -> None:
    theirs, ours = (seen_by_smdebug(folder / name) for folder in folders)
    # Its expression for all features but the bias leaves those out whose name ends in a letter
    # of "bias", too.
    added = {"average_shap/bmi", "full_shap/bmi"}
    assert set(ours["names"]) - set(theirs["names"]) == (added if name == "chosen" else set())
    assert set(theirs["names"]) <= set(ours["names"])
    for part in ("modes", "steps", "all_steps", "mode_steps", "global_steps", "workers"):
        assert ours[part] == theirs[part], part
    for collection, expected in theirs["collections"].items():
        found = ours["collections"][collection]
        assert found["include_regex"] == expected["include_regex"]
        members = [set(of["tensor_names"]) - added for of in (found, expected)]
        assert members[0] == members[1], collection
    for tensor, expected in theirs["tensors"].items():
        if tensor.startswith("average_shap/"):
            continue  # see below
        for part in ("modes", "values", "workers"):
            assert ours["tensors"][tensor][part] == expected[part], (tensor, part)


def test_averages_are_those_of_the_original_but_for_rounding(folders: tuple[Path, Path]) -> None:
    theirs, ours = (create_trial(str(folder / "chosen")) for folder in folders)
    names = theirs.tensor_names(collection="average_shap")
    assert len(names) == 9
    for name in names:
        for step in theirs.steps():
            expected, found = (trial.tensor(name).value(step) for trial in (theirs, ours))
            assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
            # It adds up float32 numbers, which cancel.
            assert found == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_what_is_saved_unasked(folders: tuple[Path, Path], seen_by_smdebug: Seen) -> None:
    found = seen_by_smdebug(folders[1] / "unasked")
    assert found["names"] == ["train-rmse", "validation-rmse"]
    assert found["all_steps"] == [0, 10]


def test_a_scalar_that_is_saved_after_the_training(
    folders: tuple[Path, Path], seen_by_smdebug: Seen
) -> None:
    theirs, ours = (seen_by_smdebug(folder / "late") for folder in folders)
    assert ours["names"] == theirs["names"] == ["scalar/score", "test-rmse"]
    scalars = [list(of["tensors"]["scalar/score"]["values"].values()) for of in (theirs, ours)]
    assert scalars[0] == scalars[1]
