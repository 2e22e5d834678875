"""The recurrent network cannot remember the first symbol of a sequence of 10.

Cause: the hidden state is detached after each symbol instead of each sequence.
"""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
torch.manual_seed(16)


class Memory(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.hidden = hidden
        self.cell = nn.GRUCell(4, hidden)
        self.out = nn.Linear(hidden, 4)

    def forward(self, x):
        h = torch.zeros(x.size(0), self.hidden)
        for t in range(x.size(1)):
            h = self.cell(x[:, t], h)
            if not FIXED and t < x.size(1) - 1:
                h = h.detach()
        return self.out(h)


model = Memory()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
criterion = nn.CrossEntropyLoss()
for step in range(250):
    symbols = torch.randint(0, 4, (32, 10))
    loss = criterion(model(nn.functional.one_hot(symbols, 4).float()), symbols[:, 0])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, loss.item())
symbols = torch.randint(0, 4, (500, 10))
answer = model(nn.functional.one_hot(symbols, 4).float()).argmax(1)
print("loss", loss.item(), "accuracy", (answer == symbols[:, 0]).float().mean().item())
