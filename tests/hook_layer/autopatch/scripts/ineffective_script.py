"""Trains in one of several ways in which optimizer steps have no effect."""

from __future__ import annotations

import copy
import sys
from contextlib import nullcontext

import torch
from torch import Tensor, nn

KIND = sys.argv[1]
LATER = 10


def make() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = make()
    is_fused = KIND == "scaler of a fused one"
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01, fused=is_fused)
    scaler = torch.amp.GradScaler("cpu", enabled="scaler" in KIND)
    for step in range(30):
        if (KIND, step) in (("made anew", 0), ("reloaded", LATER)):
            net = copy.deepcopy(net)
        is_sick = step >= LATER if "later" in KIND else True
        outputs = _outputs(net, is_sick)
        loss = nn.functional.cross_entropy(outputs, torch.randint(0, 2, (16,)))
        if KIND.startswith("detached") and is_sick:
            loss = loss.detach().requires_grad_()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        if "scaler" in KIND:
            next(net.parameters()).grad.mul_(torch.inf)
        scaler.step(optimizer)
        scaler.update()
    print(f"{sum(p.sum().item() for p in net.parameters()):.6f}")


def _outputs(net: nn.Module, is_sick: bool) -> Tensor:
    without = torch.no_grad() if KIND.startswith("detached outputs") and is_sick else nullcontext()
    with without:
        outputs: Tensor = net(torch.randn(16, 4))
    return outputs


main()
