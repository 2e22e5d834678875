"""The original's reader, in an environment of its own, agrees with ours on what the hook saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mxnet as mx
import pytest

import hook_layer.mxnet as smd
from tests.frameworks.mxnet.gluon_training import EVERY_STEP, Training
from tests.interop.comparison import assert_same
from tests.interop.dump_trial import dump
from tests.interop.environment import SmdebugReader

pytestmark = pytest.mark.other_environment


def seen_by_us(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(json.dumps(dump("rule_runtime", str(path))))
    return content


def write_trials(folder: Path) -> list[Path]:
    """Write a trial in each of the ways in which steps and tensors differ."""
    reductions = smd.ReductionConfig(["mean", "std"], ["max"], ["l2"], save_raw_tensor=True)
    ways: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "chosen": ({"include_regex": "conv0.*"}, {}),
        "hybridized": ({"include_regex": "conv0.*"}, {"hybridize": {}}),
        "everything": ({"save_all": True, "reduction_config": reductions}, {"contexts": 2}),
    }
    for name, (options, ways_to_train) in ways.items():
        hook = smd.Hook(str(folder / name), save_config=EVERY_STEP, **options)
        training = Training(hook, **ways_to_train)
        hook.set_mode(smd.modes.TRAIN)
        for step in range(3):
            training.step()
            hook.save_scalar("lr", 0.1 * step)
        hook.set_mode(smd.modes.EVAL)
        training.net(mx.nd.ones((2, 1, 12, 12)))
        hook.close()
    return [folder / name for name in ways]


def test_both_readers_agree_on_names_steps_and_values(tmp_path: Path) -> None:
    reader = SmdebugReader()
    try:
        for path in write_trials(tmp_path):
            found = reader.seen(path)
            assert found["loaded_all_steps"]
            assert found["steps"]["TRAIN"] == [0, 1, 2]
            assert "conv0_relu_output_0" in found["names"]
            assert_same(seen_by_us(path), found)
    finally:
        reader.close()
