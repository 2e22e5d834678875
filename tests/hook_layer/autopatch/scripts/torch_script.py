"""A training as people write it: nothing of Stepwatch in it. Options choose what is special."""

import argparse
import json
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

parser = argparse.ArgumentParser()
parser.add_argument("--config", default="mine")
parser.add_argument("--compile", choices=["no", "wrapped", "in_place"], default="no")
parser.add_argument("--loss", choices=["module", "own", "function"], default="module")
parser.add_argument("--parallel", action="store_true")
parser.add_argument("--stop-in")
options = parser.parse_args()

torch.set_num_threads(1)
torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(8, 16)
        self.head = nn.Linear(16, 3)

    def forward(self, inputs):
        return self.head(torch.relu(self.hidden(inputs)))


class FocalLoss(nn.Module):
    def forward(self, outputs, labels):
        losses = functional.cross_entropy(outputs, labels, reduction="none")
        return ((1 - torch.exp(-losses)) ** 2 * losses).mean()


scale = nn.Flatten()  # has no parameters: it is no model
model = Net()
if options.parallel:
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    model = nn.parallel.DistributedDataParallel(model)
if options.compile == "wrapped":
    model = torch.compile(model, fullgraph=True, backend="eager")
if options.compile == "in_place":
    model.compile(fullgraph=True, backend="eager")
criterion = {
    "module": nn.CrossEntropyLoss,
    "own": FocalLoss,
    "function": lambda: functional.cross_entropy,
}[options.loss]()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
inputs, labels = torch.randn(64, 8), torch.randint(0, 3, (64,))
for _ in range(2):
    model.train()
    for batch in range(100_000 if options.stop_in else 4):
        if options.stop_in and batch % 1000 == 3:  # the first may be taken for an earlier run's
            reason = f"the loss is bad in batch {batch}"
            Path(options.stop_in, "stop.json").write_text(json.dumps({"Reason": reason}))
        optimizer.zero_grad()
        loss = criterion(model(scale(inputs)), labels)
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        validation = criterion(model(scale(inputs)), labels)
print(json.dumps({"loss": validation.item(), "config": options.config, "arguments": sys.argv[1:]}))
