"""A training that saves checkpoints, and resumes from the last one.

python -m examples.spot_training.train OUT_DIR CHECKPOINTS [STEP]

With STEP it sends itself SIGTERM there, as a spot instance does before it stops.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import torch
from torch import nn

import stepwatch.torch as smd
from examples.images import load_images
from examples.spot_training.plan import NUM_STEPS, SAVE_INTERVAL

BATCH_SIZE = 64
CHECKPOINT_EVERY = 25


def main(out_dir: str, checkpoints: Path, interrupted_at: int | None = None) -> None:
    """Train, from the last checkpoint on."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    _, (images, labels), _ = load_images()
    net = nn.Sequential(nn.Flatten(), nn.LazyLinear(64), nn.ReLU(), nn.Linear(64, 10))
    net(images[:1])  # the first layer takes its number of inputs from them
    loss = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    first = resume(checkpoints, net, optimizer)
    # The hook stores its own state with the checkpoints: CheckpointConfig in the
    # configuration file, or /opt/ml/checkpoints on SageMaker.
    hook = smd.Hook(
        out_dir,
        include_collections=["weights", "gradients", "losses"],
        save_config=smd.SaveConfig(save_interval=SAVE_INTERVAL),
    )
    hook.register_module(net)
    hook.register_loss(loss)
    hook.set_mode(smd.modes.TRAIN)
    print(f"training from step {first} on", flush=True)
    for step in range(first, NUM_STEPS):
        batch = torch.randint(len(images), (BATCH_SIZE,))
        optimizer.zero_grad()
        loss(net(images[batch]), labels[batch]).backward()
        optimizer.step()
        if step % CHECKPOINT_EVERY == CHECKPOINT_EVERY - 1:
            state = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(state, checkpoints / f"{step:06d}.pt")
        if step == interrupted_at:
            os.kill(os.getpid(), signal.SIGTERM)
    print("trained to the end", flush=True)
    hook.close()


def resume(checkpoints: Path, net: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load the last checkpoint, if there is one, and return the step to go on with."""
    files = sorted(checkpoints.glob("*.pt"))
    if not files:
        return 0
    state = torch.load(files[-1], weights_only=True)
    net.load_state_dict(state["net"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"]) + 1


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else None)  # noqa: PLR2004
