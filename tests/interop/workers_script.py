"""Train on two workers with our hook, and note every value as torch has it.

    python workers_script.py RANK FOLDER

Each of the two writes what it saw to FOLDER/source-RANK.npz, the hook to FOLDER/trial.
"""

from __future__ import annotations

import sys
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

import hook_layer.pytorch as smd

SIZE = 2
MODES = (smd.modes.TRAIN, smd.modes.TRAIN, smd.modes.EVAL, smd.modes.TRAIN, smd.modes.TRAIN)


class Net(nn.Module):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 4)
        self.second = nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.second(self.first(inputs).relu())
        return outputs


def make_hook(folder: str) -> smd.Hook:
    hook = smd.Hook(
        f"{folder}/trial",
        save_config=smd.SaveConfig(save_interval=2),
        include_collections=["weights", "biases", "gradients", "losses", "reduced"],
        include_workers="all",
    )
    reduced = hook.get_collection("reduced")
    reduced.include("first_output")
    reduced.reduction_config = smd.ReductionConfig(
        reductions=["min", "max", "sum"], norms=["l1", "l2"]
    )
    return hook


def main(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/rendezvous",
        rank=rank,
        world_size=SIZE,
        timeout=timedelta(seconds=60),
    )
    torch.manual_seed(0)
    hook, net, loss = make_hook(folder), Net(), nn.CrossEntropyLoss()
    hook.register_module(net)
    hook.register_loss(loss)
    model = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    torch.manual_seed(rank)
    source = {}
    for step, mode in enumerate(MODES):
        hook.set_mode(mode)
        source |= train_step(step, mode, model, loss, optimizer)
    hook.close()
    assert not hook.report().errors, hook.report()
    np.savez(f"{folder}/source-{rank}.npz", **source)
    dist.destroy_process_group()


def train_step(
    step: int,
    mode: smd.modes,
    model: nn.Module,
    loss: nn.Module,
    optimizer: torch.optim.Optimizer,
) -> dict[str, np.ndarray]:
    """Train or evaluate one batch, and return the values of the step by `step|tensor`."""
    net = model.module
    inputs, labels = torch.randn(8, 6), torch.randint(0, 3, (8,))
    seen = {f"Net_{name}": p.detach().clone() for name, p in net.named_parameters()}
    optimizer.zero_grad()
    result = loss(model(inputs), labels)
    seen["CrossEntropyLoss_output_0"] = result.detach()
    with torch.no_grad():
        outputs = nn.functional.linear(inputs, net.first.weight, net.first.bias)
    for reduction in ("min", "max", "sum"):
        seen[f"first_output_0 {reduction}"] = getattr(outputs, reduction)()
    for order in (1, 2):
        seen[f"first_output_0 l{order}"] = outputs.norm(p=order)
    if mode is smd.modes.TRAIN:
        result.backward()
        seen |= {f"gradient/Net_{n}": p.grad.clone() for n, p in net.named_parameters()}
        optimizer.step()
    return {f"{step}|{name}": value.numpy().copy() for name, value in seen.items()}


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
