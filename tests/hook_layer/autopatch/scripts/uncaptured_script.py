"""Trains in a way that no hook can capture: the first argument says which."""

from __future__ import annotations

import sys

import torch
from torch import nn
from torch.nn import functional

HOW = sys.argv[1]
torch.manual_seed(0)
inputs = torch.randn(8, 3)
model = nn.Linear(3, 1)
scripted = torch.jit.script(model) if HOW == "jit" else None
plain = torch.zeros(3, 1, requires_grad=True)
if HOW == "frozen":
    model.requires_grad_(False)
parameters = [plain] if HOW == "plain tensors" else list(model.parameters())
optimizer = None if HOW == "no optimizer" else torch.optim.SGD(parameters, 0.01)


def outputs() -> torch.Tensor:
    if scripted is not None:
        return scripted(inputs)
    if HOW == "functions":
        return functional.linear(inputs, model.weight, model.bias)
    return model(inputs) if HOW == "frozen" else inputs @ plain


for step in range(60):
    loss = outputs().square().mean()
    if HOW == "frozen":
        loss.requires_grad_()
    loss.backward()
    if optimizer is not None:
        optimizer.step()
        optimizer.zero_grad()
    if step == 49:
        print("step 49", file=sys.stderr, flush=True)
print(parameters[0].sum().item(), plain.grad is None)
