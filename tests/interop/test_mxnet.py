"""MXNet: the original reads our files, and its own hook writes the same."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.interop.comparison import assert_same
from tests.interop.environment import MXNET_PYTHON, original_on_path, run_scripts

pytestmark = pytest.mark.other_environment
Seen = Callable[[Path], dict[str, Any]]


@pytest.fixture(scope="module", params=["registered", "unchanged"])
def folders(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """The trials that the script writes with the original's hook, and with ours."""
    theirs, ours = (tmp_path_factory.mktemp(name) / "trial" for name in ("original", "ours"))
    run_scripts(
        (MXNET_PYTHON, "mxnet_script.py", "smdebug.mxnet", theirs, request.param),
        (MXNET_PYTHON, "mxnet_script.py", "hook_layer.mxnet", ours, request.param),
        path=original_on_path(tmp_path_factory.mktemp("packages")),
    )
    return theirs, ours


def test_our_reader_says_the_same_of_the_originals_files(
    folders: tuple[Path, Path], seen_by_smdebug: Seen, seen_by_us: Seen
) -> None:
    of_original = folders[0]
    assert_same(
        seen_by_us(of_original), seen_by_smdebug(of_original), what="MXNet, by the original"
    )


def test_both_readers_say_the_same_of_our_files(
    folders: tuple[Path, Path], seen_by_smdebug: Seen, seen_by_us: Seen
) -> None:
    of_ours = folders[1]
    assert_same(seen_by_us(of_ours), seen_by_smdebug(of_ours), what="MXNet, by Stepwatch")


def test_our_hook_writes_what_the_originals_writes(
    folders: tuple[Path, Path], seen_by_smdebug: Seen
) -> None:
    theirs, ours = (copy.deepcopy(seen_by_smdebug(folder)) for folder in folders)
    for part in ("names", "modes", "steps", "all_steps", "mode_steps", "workers", "collections"):
        assert ours[part] == theirs[part], part
    for name, tensor in theirs["tensors"].items():
        if name.endswith(("weight", "bias")) and not name.startswith("gradient/"):
            continue  # ours are those before the step
        found = ours["tensors"][name]
        for step, values in tensor["values"].items():
            # In validation the original saves the gradients of the last training step once more.
            if step in found["values"] or not name.startswith("gradient/"):
                assert found["values"][step] == values, (name, step)
                reductions = found["reductions"][step]["worker_0"]  # numpy's, so rounded otherwise
                assert reductions.keys() == tensor["reductions"][step]["worker_0"].keys()
