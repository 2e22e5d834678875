"""Train a small network with TensorBoard output, by the original's client or ours.

python tensorboard_script.py smdebug.pytorch|hook_layer.pytorch PATH
"""

from __future__ import annotations

import importlib
import sys

import torch
from torch import nn


def main(module: str, path: str) -> None:
    """Train three steps, evaluate one, train a last one."""
    smd = importlib.import_module(module)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    hook = smd.Hook(
        path,
        export_tensorboard=True,
        save_config=smd.SaveConfig(save_interval=1),
        include_collections=["weights", "biases", "gradients", "losses", "flags"],
    )
    hook.get_collection("flags").include("relu_output")
    hook.get_collection("biases").save_histogram = False
    net = nn.Sequential()
    net.add_module("conv", nn.Conv2d(1, 4, 3))
    net.add_module("relu", nn.ReLU())
    net.add_module("flatten", nn.Flatten())
    net.add_module("fc", nn.Linear(4 * 6 * 6, 10))
    loss = nn.CrossEntropyLoss()
    hook.register_module(net)
    hook.register_loss(loss)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    images, labels = torch.randn(16, 1, 8, 8), torch.randint(0, 10, (16,))
    for step in range(5):
        hook.set_mode(smd.modes.EVAL if step == 3 else smd.modes.TRAIN)
        optimizer.zero_grad()
        loss(net(images), labels).backward()
        hook.save_scalar("learning_rate", 0.1 / (step + 1))
        optimizer.step()
    hook.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
