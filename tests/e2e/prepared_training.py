"""A training script that takes everything about its hook from the environment.

python -m tests.e2e.prepared_training LEARNING_RATE NUM_STEPS
"""

from __future__ import annotations

import sys

import torch
from torch import nn

import hook_layer.pytorch as smd


def main(learning_rate: float, num_steps: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    loss = nn.MSELoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=learning_rate)
    hook = smd.Hook.create_from_json_file()
    hook.register_module(net)
    hook.register_loss(loss)
    inputs = torch.randn(64, 8)
    targets = inputs.sum(1, keepdim=True)
    try:
        for step in range(num_steps):
            optimizer.zero_grad()
            loss(net(inputs), targets).backward()
            optimizer.step()
            if step % 100 == 0:
                print(f"step {step}", flush=True)
    except smd.TrainingStoppedError as stop:
        print(f"stopped: {stop}", flush=True)
    hook.close()


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
