"""Train a small network with a hook that writes to PATH.

    python train_script.py smdebug.pytorch|hook_layer.pytorch PATH

A script of the original moves to ours by changing the module's name, and nothing else.
"""

import importlib
import sys

import torch
from torch import nn


class Net(nn.Module):
    """Two layers and a regex-named activation."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3)
        self.relu1 = nn.ReLU()
        self.fc = nn.Linear(4 * 6 * 6, 10)

    def forward(self, images):
        """Return logits [batch, 10]."""
        return self.fc(self.relu1(self.conv1(images)).flatten(1))


def main(module, path):
    """Write raw values and reductions, in two modes, at the first, third and fifth step."""
    smd = importlib.import_module(module)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    hook = smd.Hook(
        path,
        save_config=smd.SaveConfig(save_interval=2),
        include_collections=["weights", "biases", "gradients", "losses", "activations", "reduced"],
    )
    hook.get_collection("activations").include("relu1_output")
    reduced = hook.get_collection("reduced")
    reduced.include("fc.weight$")
    reduced.reduction_config = smd.ReductionConfig(
        reductions=["min", "max", "mean", "std"], abs_reductions=["mean"], norms=["l1", "l2"]
    )
    net, loss = Net(), nn.CrossEntropyLoss()
    hook.register_module(net)
    hook.register_loss(loss)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    images, labels = torch.randn(16, 1, 8, 8), torch.randint(0, 10, (16,))
    for step in range(6):
        hook.set_mode(smd.modes.EVAL if step == 4 else smd.modes.TRAIN)
        optimizer.zero_grad()
        result = loss(net(images), labels)
        result.backward()
        hook.save_scalar("learning_rate", 0.1)
        optimizer.step()
    hook.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
