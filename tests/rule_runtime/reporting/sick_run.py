"""A real training that goes wrong: its learning rate jumps, and everything becomes NaN."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

import hook_layer.pytorch as smd

STEPS = 60
JUMP = 40


def write_sick_trial(root: Path) -> None:
    """Train for 60 steps with an evaluation after each ten; from step 40 on much too fast."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    hook = smd.Hook(
        root,
        include_collections=["weights", "biases", "gradients", "losses"],
        save_config=smd.SaveConfig(save_interval=1),
    )
    hook.register_module(net)
    hook.register_loss(criterion)
    inputs = torch.randn(64, 8)
    labels = inputs[:, :3].argmax(dim=1)
    for step in range(STEPS):
        hook.set_mode(smd.modes.TRAIN)
        if step == JUMP:
            optimizer.param_groups[0]["lr"] = 1e6
        optimizer.zero_grad()
        criterion(net(inputs), labels).backward()
        optimizer.step()
        hook.save_scalar("learning_rate", optimizer.param_groups[0]["lr"])
        if step % 10 == 9:
            hook.set_mode(smd.modes.EVAL)
            with torch.no_grad():
                criterion(net(inputs), labels)
    hook.close()
