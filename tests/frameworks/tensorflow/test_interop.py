"""The original's reader says the same as ours of what the hook for sessions wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import hook_layer.tensorflow as smd
from tests.frameworks.tensorflow.session_training import Network, feed, train
from tests.interop.comparison import assert_same
from tests.interop.dump_trial import dump
from tests.interop.environment import SmdebugReader


def test_both_readers_say_the_same(tmp_path: Path) -> None:
    path = tmp_path / "run"
    hook = smd.SessionHook(
        path,
        save_config=smd.SaveConfig(save_interval=2),
        include_collections=["weights", "biases", "gradients", "optimizer_variables"],
        reduction_config=smd.ReductionConfig(["mean"], norms=["l2"], save_raw_tensor=True),
    )
    hook.set_mode(smd.modes.TRAIN)

    def evaluate(session: Any, network: Network, step: int) -> None:
        hook.set_mode(smd.modes.EVAL)
        session.run(network.parts["loss"], feed(step))
        hook.set_mode(smd.modes.TRAIN)

    train(hook, steps=5, run=evaluate)
    hook.close()
    reader = SmdebugReader()
    try:
        theirs = reader.seen(path)
    finally:
        reader.close()
    ours = json.loads(json.dumps(dump("rule_runtime", str(path))))
    assert {"loss:0", "w1:0", "bias1:0", "w2/Adam:0"} <= set(theirs["names"])
    assert theirs["steps"] == {"TRAIN": [0, 2, 4], "EVAL": [0, 2, 4]}
    assert_same(ours, theirs)
