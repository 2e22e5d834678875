"""A model that calls copies of its part, and has other modules that are no losses."""

from __future__ import annotations

import gc
import threading
import weakref

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn


class Scaled(nn.Module):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs / 2


class Penalty(nn.Module):
    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight.square().sum()


class Parallel(nn.Module):
    """Computes as torch.nn.DataParallel does, with a copy in a thread of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Linear(3, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        replica = self.part._replicate_for_data_parallel()
        replica.weight, replica.bias = self.part.weight.clone(), self.part.bias.clone()
        replicas.append(weakref.ref(replica))
        found: list[torch.Tensor] = []
        thread = threading.Thread(target=lambda: found.append(replica(inputs)))
        thread.start()
        thread.join()
        return found[0]


torch.manual_seed(0)
torch.set_num_threads(1)
replicas: list[weakref.ref[nn.Module]] = []
model, scaled, penalty = Parallel(), Scaled(), Penalty()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs, targets = torch.randn(8, 3), torch.randn(8, 1)
for _ in range(5):
    optimizer.zero_grad()
    outputs = model(scaled(inputs))
    loss = F.mse_loss(outputs, targets)
    loss.backward()
    (0.1 * penalty(model.part.weight)).backward()
    optimizer.step()
    print(float(loss.detach()))
del outputs, loss
gc.collect()
print(sum(replica() is not None for replica in replicas), "replicas are left")
print([len(module._forward_hooks) for module in (scaled, penalty)], "hooks beside the model")
print(torch.jit.script(nn.Sequential(scaled, model.part))(inputs).sum() != 0)
