"""Subclasses of the hook for PyTorch are called as the original calls them, and save the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.interop.environment import OUR_PYTHON, SMDEBUG_PYTHON, run_scripts

pytestmark = pytest.mark.other_environment
Seen = Callable[[Path], dict[str, Any]]
OVERRIDDEN = {"forward_pre_hook", "forward_hook", "_write_inputs", "_write_outputs",
              "backward_hook", "back"}  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, list[Any]]]:
    """The trials of the original and of ours, with the calls of `Recording`."""
    folders = [tmp_path_factory.mktemp(name) for name in ("original", "ours")]
    outputs = run_scripts(
        (SMDEBUG_PYTHON, "overriding_script.py", "smdebug.pytorch", folders[0]),
        (OUR_PYTHON, "overriding_script.py", "hook_layer.pytorch", folders[1]),
    )
    calls = [json.loads(text.partition("calls:")[2].partition("\n")[0]) for text in outputs]
    return list(zip(folders, calls, strict=True))


def test_every_overridden_method_is_called_as_by_the_original(
    trained: list[tuple[Path, list[Any]]],
) -> None:
    theirs, ours = (calls for _, calls in trained)
    assert {method for _, method, _ in ours} == OVERRIDDEN
    assert ours == theirs


@pytest.mark.parametrize("trial", ["recording", "interpreting"])
def test_the_same_is_saved(
    trained: list[tuple[Path, list[Any]]], seen_by_smdebug: Seen, trial: str
) -> None:
    theirs, ours = (seen_by_smdebug(folder / trial) for folder, _ in trained)
    for part in ("names", "modes", "steps", "all_steps", "mode_steps"):
        assert ours[part] == theirs[part], part
    for name, tensor in theirs["tensors"].items():
        for part in ("modes", "values"):
            assert ours["tensors"][name][part] == tensor[part], (name, part)
