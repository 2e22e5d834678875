"""The line moves past the points and never turns back.

Cause: the loss is computed once before the loop; `retain_graph=True` silenced the error.
"""

import sys

import torch

FIXED = "--fixed" in sys.argv
torch.manual_seed(31)

X = torch.rand(100, 1) * 4 - 2
Y = 1.5 * X - 0.7 + 0.2 * torch.randn(100, 1)

model = torch.nn.Linear(1, 1)
criterion = torch.nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

loss = criterion(model(X), Y)
for iteration in range(120):
    if FIXED:
        loss = criterion(model(X), Y)
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
    if iteration % 20 == 0:
        print(iteration, loss.item(), model.weight.item(), model.bias.item())
print("mse at the end", criterion(model(X), Y).item())
