"""A training that saves checkpoints, resumes from the last one, and is interrupted on request.

Arguments: where to write, the checkpoint directory, and what happens in which step, as in
`SIGKILL:7`; nothing: it trains to its end. With `RANK`, `WORLD_SIZE` and `RENDEZVOUS` (a file) in
the environment it is one of several workers; the first one saves the checkpoints.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from hook_layer.pytorch import Hook, SaveConfig, modes

NUM_STEPS = 14
CHECKPOINT_EVERY = 4


def train(out_dir: str, folder: Path, interruption: str = "") -> None:
    """Train, from the last checkpoint on if there is one."""
    how, _, at_step = interruption.partition(":")
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if size > 1:
        rendezvous = f"file://{os.environ['RENDEZVOUS']}"
        dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=size)
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Dropout(0.5), torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    loss = torch.nn.MSELoss()
    first = 0
    checkpoints = sorted(folder.glob("*.pt"))
    if checkpoints:
        state = torch.load(checkpoints[-1], weights_only=True)
        net.load_state_dict(state["net"])
        optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["rng"])
        first = state["step"] + 1
    hook = Hook(
        out_dir,
        save_config=SaveConfig(save_interval=1),
        include_collections=["weights", "gradients", "losses"],
        include_workers="all",
    )
    hook.register_module(net)
    hook.register_loss(loss)
    hook.set_mode(modes.TRAIN)
    model = net if size == 1 else torch.nn.parallel.DistributedDataParallel(net)
    for step in range(first, NUM_STEPS):
        inputs = torch.randn(8, 4)
        optimizer.zero_grad()
        value = loss(model(inputs), inputs.sum(1, keepdim=True))
        value.backward()
        if how == "SIGKILL" and step == int(at_step):
            hook.flush()  # the writer is not behind; what it had in memory would be lost
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.step()
        hook.save_scalar("lr", 0.01)
        if rank == 0 and step % CHECKPOINT_EVERY == CHECKPOINT_EVERY - 1:
            state = {
                "net": net.state_dict(),
                "optimizer": optimizer.state_dict(),
                "rng": torch.get_rng_state(),
                "step": step,
            }
            torch.save(state, folder / f"{step:03d}.pt")
        if how == "SIGTERM" and step == int(at_step):
            os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    train(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
