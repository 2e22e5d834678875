"""A network whose learning rate is warmed up, and whose author forgot to end the warm-up.

STEPWATCH_CONFIG=s3://bucket/output/job/stepwatch.json python -m examples.react_to_rules.train

The environment configures the saved tensors, their folder and the rules.
"""

from __future__ import annotations

import torch
from torch import nn

import stepwatch.torch as smd
from examples.images import load_images

NUM_STEPS = 1_000_000  # so many that it cannot end by itself before it is stopped
BATCH_SIZE = 64
FIRST_RATE = 0.02
GROWTH = 1.03
LARGEST_RATE = 100.0
_STEPS_BETWEEN_LINES = 100


class Net(nn.Module):
    """Three linear layers with tanh between them; takes images [batch, 1, height, width]."""

    def __init__(self, num_pixels: int) -> None:
        super().__init__()
        self.fc0 = nn.Linear(num_pixels, 64)
        self.tanh0 = nn.Tanh()
        self.fc1 = nn.Linear(64, 64)
        self.tanh1 = nn.Tanh()
        self.fc2 = nn.Linear(64, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return logits [batch, 10]."""
        features = self.tanh1(self.fc1(self.tanh0(self.fc0(images.flatten(1)))))
        logits: torch.Tensor = self.fc2(features)
        return logits


def main() -> None:
    """Train; end early, with the reason, if Stepwatch requests it."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    _, (images, labels), _ = load_images()
    net, loss = Net(images[0].numel()), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=FIRST_RATE)
    hook = smd.Hook.create_from_json_file()
    hook.register_module(net)
    hook.register_loss(loss)
    hook.set_mode(smd.modes.TRAIN)
    try:
        for step in range(NUM_STEPS):
            batch = torch.randint(len(images), (BATCH_SIZE,))
            optimizer.zero_grad()
            batch_loss = loss(net(images[batch]), labels[batch])
            batch_loss.backward()
            optimizer.step()
            rate = optimizer.param_groups[0]["lr"]
            if step % _STEPS_BETWEEN_LINES == 0:
                print(f"step {step}: loss {batch_loss:.4g}, learning rate {rate:.3g}", flush=True)
            optimizer.param_groups[0]["lr"] = min(rate * GROWTH, LARGEST_RATE)
    except smd.TrainingStoppedError as stop:
        print(f"stopped: {stop}", flush=True)
    hook.close()


if __name__ == "__main__":
    main()
