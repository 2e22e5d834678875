"""A trial that the real hook for PyTorch writes: a small CNN on digits."""

from __future__ import annotations

from pathlib import Path

import torch
from sklearn import datasets
from torch import nn

import hook_layer.pytorch as smd


class Net(nn.Module):
    """A convolution and a linear layer; takes images [batch, 1, 8, 8]."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.fc = nn.Linear(4 * 64, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return logits [batch, 10]."""
        logits: torch.Tensor = self.fc(torch.relu(self.conv(images)).flatten(1))
        return logits


def write_cnn_trial(root: Path) -> None:
    """Train for 12 steps, evaluate for 2; every second step is saved."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    digits = datasets.load_digits()
    images = torch.tensor(digits.images[:, None] / 16.0).float()
    labels = torch.tensor(digits.target)
    net, criterion = Net(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    hook = smd.Hook(
        root,
        include_collections=["weights", "gradients", "losses"],
        include_regex="conv_output",
        save_config=smd.SaveConfig(save_interval=2),
    )
    hook.register_module(net)
    hook.register_loss(criterion)
    hook.set_mode(smd.modes.TRAIN)
    for at in range(12):
        batch = slice(50 * at, 50 * at + 50)
        optimizer.zero_grad()
        criterion(net(images[batch]), labels[batch]).backward()
        optimizer.step()
    hook.set_mode(smd.modes.EVAL)
    with torch.no_grad():
        for at in range(4):
            batch = slice(1500 + 50 * at, 1550 + 50 * at)
            criterion(net(images[batch]), labels[batch])
    hook.close()
