"""Scripts without a hook get one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from hook_layer.testing.written_trial import WrittenTrial

ROOT = Path(__file__).parents[3]
TIMEOUT_S = 120

SCRIPT = """
import mxnet as mx
from mxnet import autograd, gluon
from mxnet.gluon import nn

{watch}
mx.random.seed(0)
features = nn.Dense(4, in_units=6, prefix="features_")
net = nn.HybridSequential(prefix="net_")
net.add(nn.Dense(8, activation="relu", in_units=4, prefix="hidden_"), nn.Dense(3, prefix="head_"))
for block in (features, net):
    block.initialize(mx.init.Constant(0.1))
criterion = gluon.loss.SoftmaxCrossEntropyLoss(prefix="loss0_")
{own_hook}
trainer = gluon.Trainer(net.collect_params(), "sgd", {{"learning_rate": 0.1}})
for step in range(4):
    inputs = features(mx.nd.random.normal(shape=(5, 6)))
    with autograd.record():
        loss = criterion(net(inputs), mx.nd.array([0, 1, 2, 0, 1]))
    loss.backward()
    trainer.step(5)
    print(loss.asnumpy().tobytes().hex())
criterion(net(inputs), mx.nd.array([0, 1, 2, 0, 1]))
other = nn.Dense(2, prefix="other_")
other.initialize()
with autograd.record():
    loss = other(inputs).sum()
loss.backward()
print(gluon.Block.__call__.__qualname__)
"""
WATCH = """
from hook_layer.autopatch.hook_source import HookSource
from hook_layer.mxnet.unchanged import watch_unchanged
watch_unchanged(HookSource(config="hook.json"))
"""
OWN_HOOK = """
import hook_layer.mxnet as smd
hook = smd.Hook("own", save_config=smd.SaveConfig(save_interval=1))
hook.register_block(net)
"""
CONFIGURATION = """{"LocalPath": "trial", "HookParameters": {"save_interval": "1"},
"CollectionConfigurations": [{"CollectionName": "weights"}, {"CollectionName": "gradients"},
{"CollectionName": "relu_output"}]}"""


def run(folder: Path, watch: str = "", own_hook: str = "") -> list[str]:
    (folder / "script.py").write_text(SCRIPT.format(watch=watch, own_hook=own_hook))
    (folder / "hook.json").write_text(CONFIGURATION)
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "script.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout.splitlines()


def test_the_model_and_its_loss_are_found(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "watched").mkdir()
    watched = run(tmp_path / "watched", WATCH)
    assert watched == run(tmp_path / "plain")  # the losses, and that nothing is patched any more
    trial = WrittenTrial(str(tmp_path / "watched" / "trial"))
    modes = [index.mode.name for _, index in sorted(trial.indexes().items())]
    assert modes == [*["TRAIN"] * 4, "EVAL"]
    weights = {"hidden_weight", "head_weight"}
    gradients = {f"gradient/{n}_{kind}" for n in ("hidden", "head") for kind in ("weight", "bias")}
    saved = {"loss0_output_0", "hidden_relu_output_0", *weights, *gradients}
    # The head's weights get their shape in the first pass, and are saved with it all the same.
    assert [trial.names(step) for step in range(4)] == [saved] * 4
    assert trial.names(4) == {"loss0_output_0", "hidden_relu_output_0", *weights}
    assert trial.end_marker() is not None


def test_a_script_keeps_the_hook_that_it_has(tmp_path: Path) -> None:
    run(tmp_path, WATCH, OWN_HOOK)
    assert not (tmp_path / "trial").exists()
    assert sorted(WrittenTrial(str(tmp_path / "own")).indexes())[:4] == [0, 1, 2, 3]
