"""A training script as a user has it: a small CNN, a few lines of Stepwatch, and nothing else.

python -m examples.demo.train --out-dir s3://bucket/job/debug-output --learning-rate 0.004
"""

from __future__ import annotations

import argparse

import torch
from torch import nn

import stepwatch.torch as smd
from examples.images import load_images

_BATCH_SIZE = 64
_SAVE_INTERVAL = 10
_EPOCHS_BETWEEN_EVALUATIONS = 5
_STEPS_BETWEEN_LINES = 20
_STOP_POLL_S = 0.5
"""Interval of checks for a stop request, as in `stepwatch run`; the default is 5 s."""


class Net(nn.Module):
    """Two convolutions and a linear layer; takes images [batch, 1, height, width]."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.relu2 = nn.ReLU()
        self.pool = nn.AdaptiveAvgPool2d(4)
        self.fc = nn.Linear(64 * 4 * 4, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return logits [batch, 10]."""
        features = self.relu2(self.conv2(self.relu1(self.conv1(images))))
        logits: torch.Tensor = self.fc(self.pool(features).flatten(1))
        return logits


def main() -> None:
    """Train; end early, with the reason, if Stepwatch requests it."""
    arguments = parse_arguments()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data_name, training, validation = load_images()
    net, loss = Net(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=arguments.learning_rate)

    hook = make_hook(arguments.out_dir)
    hook.register_module(net)
    hook.register_loss(loss)

    steps_per_epoch = -(-len(training[0]) // _BATCH_SIZE)
    num_steps = steps_per_epoch * arguments.epochs
    print(f"training on {data_name}: {num_steps} steps", flush=True)
    step = 0
    try:
        for epoch in range(arguments.epochs):
            hook.set_mode(smd.modes.TRAIN)
            for batch in torch.split(torch.randperm(len(training[0])), _BATCH_SIZE):
                optimizer.zero_grad()
                batch_loss = loss(net(training[0][batch]), training[1][batch])
                batch_loss.backward()
                optimizer.step()
                step += 1
                if step % _STEPS_BETWEEN_LINES == 0:
                    print(f"step {step}/{num_steps} loss {batch_loss.item():.4f}", flush=True)
            if epoch % _EPOCHS_BETWEEN_EVALUATIONS == 0:
                hook.set_mode(smd.modes.EVAL)
                with torch.no_grad():
                    loss(net(validation[0]), validation[1])
    except smd.TrainingStoppedError as stop:
        print(f"stopped at step {step}/{num_steps}: {stop}", flush=True)
    else:
        print(f"finished at step {step}/{num_steps}", flush=True)
    hook.close()


def make_hook(out_dir: str) -> smd.Hook:
    """Return a hook that saves every tenth step of training, and all of validation."""
    return smd.Hook(
        out_dir,
        include_collections=["weights", "biases", "gradients", "losses"],
        save_config=smd.SaveConfig(
            {
                smd.modes.TRAIN: smd.SaveConfigMode(save_interval=_SAVE_INTERVAL),
                smd.modes.EVAL: smd.SaveConfigMode(save_interval=1),
            }
        ),
        stop_poll_s=_STOP_POLL_S,
    )


def parse_arguments() -> argparse.Namespace:
    """Return the command line's arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out-dir", required=True)
    parser.add_argument("--learning-rate", type=float, default=0.004)
    parser.add_argument("--epochs", type=int, default=20)
    return parser.parse_args()


if __name__ == "__main__":
    main()
