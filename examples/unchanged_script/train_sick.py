"""A training script of nobody's in particular: it knows nothing of Stepwatch, and cannot learn.

Twelve layers of sigmoids let next to nothing of the gradient through to the first ones.
"""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
inputs = torch.randn(2000, 20)
labels = (inputs @ torch.randn(20, 3)).argmax(1)

layers: list[nn.Module] = []
for width in [20] + [32] * 11:
    layers += [nn.Linear(width, 32), nn.Sigmoid()]
model = nn.Sequential(*layers, nn.Linear(32, 3))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(20):
    total = 0.0
    for batch in torch.randperm(2000).split(50):
        optimizer.zero_grad()
        loss = criterion(model(inputs[batch]), labels[batch])
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch}: loss {total / 40:.4f}", flush=True)
