"""Train a small network of MXNet with a hook that writes to PATH.

    python mxnet_script.py smdebug.mxnet|hook_layer.mxnet PATH registered|unchanged

With `registered`, the script registers its blocks with the hook. With `unchanged` it has no hook.
AWS's MXNet then registers each block that is called first; Stepwatch finds the model.
"""

import importlib
import json
import os
import sys
from pathlib import Path

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon import nn

CONFIGURATION = {
    "HookParameters": {"save_interval": "2"},
    "CollectionConfigurations": [
        {"CollectionName": name} for name in ("weights", "biases", "gradients", "losses", "relu")
    ],
}
CONFIGURATION["CollectionConfigurations"][-1]["CollectionParameters"] = {
    "include_regex": "relu.*output"
}


def registered(smd, path):
    """Return a hook for the script to register its blocks with."""
    hook = smd.Hook(
        path,
        save_config=smd.SaveConfig(save_interval=2),
        include_collections=["weights", "biases", "gradients", "losses", "relu", "reduced"],
    )
    hook.get_collection("relu").include("relu.*output")
    reduced = hook.get_collection("reduced")
    reduced.include("net_dense1_output")
    reduced.reduction_config = smd.ReductionConfig(
        reductions=["min", "max", "mean"], abs_reductions=["mean"], norms=["l1"]
    )
    return hook


def unchanged(module, path):
    """Configure the hook that the script does not know of."""
    file = Path(path).with_suffix(".json")
    file.write_text(json.dumps({"LocalPath": path, **CONFIGURATION}))
    os.environ["SMDEBUG_CONFIG_FILE_PATH"] = str(file)
    if module == "hook_layer.mxnet":
        source = importlib.import_module("hook_layer.autopatch.hook_source").HookSource()
        importlib.import_module("hook_layer.mxnet.unchanged").watch_unchanged(source)
        return None
    hook = importlib.import_module(module).Hook.create_from_json_file()
    call, depth = gluon.Block.__call__, []

    def registering(block, *inputs):
        if not depth and block not in hook.registered_blocks:
            hook.register_hook(block)
        depth.append(block)
        try:
            return call(block, *inputs)
        finally:
            depth.pop()

    gluon.Block.__call__ = registering
    return hook


def network():
    """Return a network, its loss and its Trainer."""
    mx.random.seed(0)
    np.random.seed(0)
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(8, activation="relu", in_units=4), nn.Dense(3, in_units=8))
    net.initialize(mx.init.Xavier())
    return net, gluon.loss.SoftmaxCrossEntropyLoss()


def main(module, path, how):
    """Train three times over the data, with a validation after each."""
    smd = importlib.import_module(module)
    hook = registered(smd, path) if how == "registered" else unchanged(module, path)
    net, loss = network()
    if how == "registered":
        hook.register_block(net)
        hook.register_block(loss)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    numbers = np.random.RandomState(0)
    inputs, labels = mx.nd.array(numbers.randn(40, 4)), mx.nd.array(numbers.randint(0, 3, 40))
    for _ in range(3):
        if how == "registered":
            hook.set_mode(smd.modes.TRAIN)
        for first in range(0, 40, 8):
            with autograd.record():
                result = loss(net(inputs[first : first + 8]), labels[first : first + 8])
            result.backward()
            trainer.step(8)
        if how == "registered":
            hook.set_mode(smd.modes.EVAL)
        for first in range(0, 24, 8):
            loss(net(inputs[first : first + 8]), labels[first : first + 8])
    if hook is not None:
        hook.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
