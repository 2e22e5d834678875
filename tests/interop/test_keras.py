"""The original reads what a Keras training wrote, and finds the values that Keras had."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.interop.comparison import assert_same
from tests.interop.dump_trial import shown
from tests.interop.environment import FRAMEWORKS_PYTHON, run_scripts

pytestmark = pytest.mark.other_environment
Seen = Callable[[Path], dict[str, Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keras")
    run_scripts((FRAMEWORKS_PYTHON, "keras_script.py", folder))
    return folder


@pytest.fixture(scope="module")
def found(folder: Path, seen_by_smdebug: Seen) -> dict[str, Any]:
    return seen_by_smdebug(folder / "trial")


def test_both_readers_say_the_same(folder: Path, found: dict[str, Any], seen_by_us: Seen) -> None:
    ours = seen_by_us(folder / "trial")
    assert_same(ours, copy.deepcopy(found), what="Keras, by Stepwatch")


def test_names_steps_and_modes(found: dict[str, Any]) -> None:
    assert found["steps"]["TRAIN"] == [0, 2, 4]
    assert found["steps"]["EVAL"][:3] == [0, 2, 4]
    assert {"loss", "batch", "gradients/hidden/kernelGrad"} <= set(found["names"])
    assert found["collections"]["losses"]["tensor_names"] == ["loss", "val_loss"]
    assert found["loaded_all_steps"]


def test_every_weight_is_the_one_that_keras_had(folder: Path, found: dict[str, Any]) -> None:
    with np.load(folder / "source.npz") as source:
        for step in (0, 2, 4):
            name = "hidden/weights/hidden/kernel:0"
            value = found["tensors"][name]["values"][str(step)]["worker_0"]
            assert value == shown(source[f"{step}|{name}"]), step
