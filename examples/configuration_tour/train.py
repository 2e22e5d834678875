"""A training whose hook takes everything from the environment, as a user's script does."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

import stepwatch.torch as smd
from examples.images import load_images

__all__ = ["STEPS_BETWEEN_EVALUATIONS", "train"]

STEPS_BETWEEN_EVALUATIONS = 20
BATCH_SIZE = 64


class Net(nn.Module):
    """A convolution and a linear layer; takes images [batch, 1, height, width]."""

    def __init__(self) -> None:
        super().__init__()
        self.conv0 = nn.Conv2d(1, 8, 3, padding=1)
        self.relu0 = nn.ReLU()
        self.pool = nn.AdaptiveAvgPool2d(4)
        self.fc = nn.Linear(8 * 4 * 4, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return logits [batch, 10]."""
        features = self.pool(self.relu0(self.conv0(images))).flatten(1)
        logits: torch.Tensor = self.fc(features)
        return logits


def train(num_steps: int, on_evaluation: Callable[[], object]) -> tuple[int, str]:
    """Train, with an evaluation of one batch now and then.

    Args:
        num_steps: How many steps are made unless somebody stops the training.
        on_evaluation: Called behind each evaluation.

    Returns:
        How many steps were made, and why no more were; empty if these were all.
    """
    torch.set_num_threads(1)
    torch.manual_seed(0)
    _, (images, labels), (held_out_images, held_out_labels) = load_images()
    net, loss = Net(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    hook = smd.Hook.create_from_json_file()
    hook.register_module(net)
    hook.register_loss(loss)
    step = 0
    try:
        for step in range(num_steps):
            if step % STEPS_BETWEEN_EVALUATIONS == 0:
                hook.set_mode(smd.modes.EVAL)
                with torch.no_grad():
                    loss(net(held_out_images), held_out_labels)
                on_evaluation()
                hook.set_mode(smd.modes.TRAIN)
            batch = torch.randint(len(images), (BATCH_SIZE,))
            optimizer.zero_grad()
            loss(net(images[batch]), labels[batch]).backward()
            optimizer.step()
    except smd.TrainingStoppedError as stop:
        return step, str(stop)
    finally:
        hook.close()
    return num_steps, ""
