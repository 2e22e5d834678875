"""Trains a model in one of the ways in which it is not simply the first module that is called."""

import sys

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(0)
kind = sys.argv[1]
graphs = []


def count(graph, _):
    graphs.append(graph)
    return graph.forward


class Backbone(nn.Linear):
    pass


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, inputs):
        return inputs + torch.relu(self.layer(inputs))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(4, 4)

    def encode(self, inputs):
        return self.blocks[1](self.blocks[0](inputs))

    def decode(self, code):
        return self.head(code)

    def forward(self, inputs):
        return self.decode(self.encode(inputs))


class Weighted(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))
        self.part = nn.Linear(1, 1)

    def forward(self, outputs, targets):
        loss = functional.huber_loss(outputs, targets)
        return self.part(torch.exp(-self.weight) * loss[None])[0] + self.weight


class FocalLoss(nn.Module):
    def forward(self, outputs, targets):
        return (outputs - targets).abs().log1p().mean()


class Features(Dataset):
    def __len__(self):
        return 20

    def __getitem__(self, index):
        return backbone(torch.full((4,), float(index))).detach()


def batches():
    if kind == "workers":
        yield from DataLoader(Features(), 4, num_workers=1)
    else:
        for _ in range(5):
            inputs = torch.randn(4, 4)
            yield backbone(inputs).detach() if kind == "beside" else inputs


backbone, net = Backbone(4, 4), Net()
criterion = {"criterion": Weighted, "regional": FocalLoss}.get(kind, nn.MSELoss)()
trained = [*net.parameters(), *criterion.parameters()]
copies = [parameter.detach().clone() for parameter in trained] if kind == "copies" else trained
optimizer = torch.optim.SGD(copies, 0.1)
if kind == "regional":
    for block in net.blocks:
        block.compile(backend=count, fullgraph=True)
    with torch.no_grad():
        net(torch.randn(4, 4))
if kind == "wrapped":
    net.blocks[0] = torch.compile(net.blocks[0], backend=count, fullgraph=True)
by_methods = {
    "methods": lambda inputs: net.decode(net.encode(inputs)),
    "forward": net.forward,
}
outputs_of = by_methods.get(kind, net)


def loss_of(inputs):
    if sys.argv[2:] == ["by hand"]:
        return (outputs_of(inputs) - inputs).square().mean()
    return criterion(outputs_of(inputs), inputs)


if kind == "function":
    loss_of = torch.compile(loss_of, backend="eager", fullgraph=True)
for _ in range(1 if kind == "workers" else 2):
    if kind != "forgotten":
        net.train()
    for inputs in batches():
        loss = loss_of(inputs)
        optimizer.zero_grad()
        loss.backward()
        with torch.no_grad():
            for parameter, copy in zip(trained, copies, strict=True):
                copy.grad = parameter.grad
            optimizer.step()
            if kind == "copies":
                for parameter, copy in zip(trained, copies, strict=True):
                    parameter.copy_(copy)
                    parameter.grad = None
        print(loss.item())
    net.eval()
    if kind == "methods":
        with torch.no_grad():
            loss_of(torch.ones(4, 4))
            net(torch.ones(4, 4))
if kind == "wrapped":
    print(len(graphs), "graphs")
