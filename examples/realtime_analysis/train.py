"""A network whose first convolution is saved while it trains.

python -m examples.realtime_analysis.train runs/realtime
"""

from __future__ import annotations

import sys

import torch
from torch import nn

import stepwatch.torch as smd
from examples.images import load_images

EPOCHS = 6
BATCH_SIZE = 64
SAVE_INTERVAL = 20


class Net(nn.Module):
    """Two convolutions and a linear layer; takes images [batch, 1, height, width]."""

    def __init__(self) -> None:
        super().__init__()
        self.conv0 = nn.Conv2d(1, 12, 5, padding=2)
        self.relu0 = nn.ReLU()
        self.conv1 = nn.Conv2d(12, 24, 3, padding=1)
        self.pool = nn.AdaptiveAvgPool2d(4)
        self.fc = nn.Linear(24 * 4 * 4, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return logits [batch, 10]."""
        features = self.conv1(self.relu0(self.conv0(images))).relu()
        logits: torch.Tensor = self.fc(self.pool(features).flatten(1))
        return logits


def main(out_dir: str) -> None:
    """Train, with values of everything whose name has `conv0` or `relu0` in it."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    name, (images, labels), _ = load_images()
    net, loss = Net(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    hook = smd.Hook(
        out_dir,
        include_regex=["conv0", "relu0"],
        save_config=smd.SaveConfig(save_interval=SAVE_INTERVAL),
    )
    hook.register_module(net)
    hook.register_loss(loss)
    hook.set_mode(smd.modes.TRAIN)
    print(f"training on {name}", flush=True)
    for _ in range(EPOCHS):
        for batch in torch.split(torch.randperm(len(images)), BATCH_SIZE):
            optimizer.zero_grad()
            loss(net(images[batch]), labels[batch]).backward()
            optimizer.step()
    hook.close()


if __name__ == "__main__":
    main(sys.argv[1])
