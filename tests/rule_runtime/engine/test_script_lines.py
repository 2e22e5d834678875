"""Which lines of the script a finding in a tensor concerns."""

from __future__ import annotations

from pathlib import Path

import pytest

from hook_layer.format.collections_file import CollectionsFile
from hook_layer.format.paths import collections_key
from hook_layer.storage.local import LocalStore
from rule_runtime.engine.evidence import lines_of
from rule_runtime.testing.trial_builder import TrialBuilder
from rule_runtime.trial.step_index import list_index_files, load_step_files
from rule_runtime.trial.step_view import StepReader

LINES = {
    "layers": {
        "fc": "net.py:1",
        "fc.1": "net.py:2",
        "fc.12": "net.py:3",
        "Net2_fc": "net.py:4",
        "0": "net.py:7",
        "1": "net.py:8",
    },
    "losses": {"MSELoss": "train.py:5", "Loss": "train.py:6"},
    "optimizers": {"SGD_0": "train.py:7", "SGD_1": "train.py:7"},
}


def lines(folder: Path, tensor: str) -> dict[str, str] | None:
    store = LocalStore(folder)
    TrialBuilder(store).step(0, {"a": [1.0]})
    store.put(collections_key("worker_0"), CollectionsFile({}, script_lines=LINES).encode())
    files = load_step_files(store, [key for key, _ in list_index_files(store)])
    return lines_of(StepReader(store).view(0, files, num_workers=1), tensor, "worker_0")


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        ("gradient/Net_fc.1.bias", "net.py:2"),
        ("Net_fc.12.weight", "net.py:3"),
        ("Net_fc.3.weight", "net.py:1"),
        ("gradient/Net2_fc.3.weight", "net.py:4"),
        ("fc.12_output_0", "net.py:3"),
        ("fc/weights/fc/kernel:0", "net.py:1"),
        ("MSELoss_input_0", "train.py:5"),
        ("1_output_0", "net.py:8"),
        ("0_input_1", "net.py:7"),
        ("scalar/fc", None),
        ("another_layer.weight", None),
        ("", None),
    ],
)
def test_a_tensor_has_the_line_of_its_layer_or_loss(
    tmp_path: Path, tensor: str, expected: str | None
) -> None:
    assert (lines(tmp_path, tensor) or {}).get("tensor") == expected


def test_of_several_losses_only_the_one_of_the_tensor_is_known(tmp_path: Path) -> None:
    assert lines(tmp_path, "MSELoss_output_0") == {
        "tensor": "train.py:5",
        "loss": "train.py:5",
        "optimizer": "train.py:7",
    }
    assert lines(tmp_path, "Net_fc.1.bias") == {"tensor": "net.py:2", "optimizer": "train.py:7"}
