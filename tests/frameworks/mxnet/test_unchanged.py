"""Scripts without a hook get one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hook_layer.testing.written_trial import WrittenTrial
from tests.python_path import PYTHON_PATH

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
CONFIGURATION = """{"LocalPath": "trial",
"HookParameters": {"save_interval": "1", "eval.save_interval": "2"},
"CollectionConfigurations": [{"CollectionName": "weights"}, {"CollectionName": "gradients"},
{"CollectionName": "relu_output"}]}"""


def run(
    folder: Path,
    watch: str = "",
    own_hook: str = "",
    configuration: str = CONFIGURATION,
    **environment: str,
) -> list[str]:
    (folder / "script.py").write_text(SCRIPT.format(watch=watch, own_hook=own_hook))
    (folder / "hook.json").write_text(configuration)
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "script.py"],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": PYTHON_PATH,
            **environment,
        },
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


@pytest.mark.parametrize(
    ("variable", "out"),
    [("SMDEBUG_CONFIG_FILE_PATH", "trial"), ("STEPWATCH_CONFIG", "job/debug-output")],
)
def test_an_interval_for_all_modes_counts_all_passes_as_the_original_does(
    tmp_path: Path, variable: str, out: str
) -> None:
    watch = WATCH.replace('config="hook.json"', "")
    configuration = {
        "TrainingJobName": "job",
        "LocalPath": str(tmp_path / "trial"),
        "S3OutputPath": tmp_path.as_uri(),
        "HookParameters": {"save_interval": "2"},
    }
    run(tmp_path, watch, configuration=json.dumps(configuration), **{variable: "hook.json"})
    trial = WrittenTrial(str(tmp_path / out))
    found = [(i.mode.name, i.mode_step) for _, i in sorted(trial.indexes().items())]
    assert found == [("GLOBAL", 0), ("GLOBAL", 2), ("GLOBAL", 4)]


def test_a_script_keeps_the_hook_that_it_has(tmp_path: Path) -> None:
    run(tmp_path, WATCH, OWN_HOOK)
    assert not (tmp_path / "trial").exists()
    assert sorted(WrittenTrial(str(tmp_path / "own")).indexes())[:4] == [0, 1, 2, 3]


FROM_FILE = """
import hook_layer.mxnet as smd
hook = smd.Hook.create_from_json_file("hook.json")
"""
REGISTERED = """
hook.register_block(net)
hook.register_block(criterion)
"""


def test_a_hook_of_a_configuration_file_attaches_to_the_first_model(tmp_path: Path) -> None:
    for name, own_hook in (("attached", FROM_FILE), ("registered", FROM_FILE + REGISTERED)):
        folder = tmp_path / name
        folder.mkdir()
        assert run(folder, own_hook=own_hook)[-1] == "Block.__call__"  # nothing is patched any more
    attached, registered = (
        WrittenTrial(str(tmp_path / name / "trial")) for name in ("attached", "registered")
    )
    assert list(attached.indexes()) == list(registered.indexes()) == [0, 1, 2, 3, 4]
    for step, index in attached.indexes().items():
        assert index.mode is registered.indexes()[step].mode
        assert attached.names(step) == registered.names(step)


def test_a_model_that_the_script_registers_replaces_the_one_that_was_found(tmp_path: Path) -> None:
    later = FROM_FILE + "before_the_net(features)\nhook.register_block(net)\n"
    training = """
def before_the_net(model):
    with autograd.record():
        loss = criterion(model(mx.nd.ones((1, 6))), mx.nd.array([0]))
    loss.backward()
"""
    run(tmp_path, own_hook=training + later)
    trial = WrittenTrial(str(tmp_path / "trial"))
    assert list(trial.indexes()) == [0, 1, 2, 3, 4, 5]
    assert "features_weight" in trial.names(0)
    assert {"head_weight", "loss0_output_0"} <= trial.names(1)
    assert not any("features" in name for name in trial.names(1))
