"""With augmentation the loss rises from epoch to epoch instead of falling.

Cause: `batch += noise` changes the slice of the data set in place, so the noise adds up.
"""

import sys

import torch
from torch import nn

FIXED = "--fixed" in sys.argv
torch.manual_seed(24)

centres = torch.randn(6, 10)
labels = torch.randint(0, 6, (600,))
data = centres[labels] + 0.4 * torch.randn(600, 10)
clean = data.clone()

model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 6))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for epoch in range(14):
    total = 0.0
    for i in range(0, 600, 30):
        batch = data[i : i + 30]
        noise = 1.2 * torch.randn(batch.shape)
        if FIXED:
            batch = batch + noise
        else:
            batch += noise
        optimizer.zero_grad()
        loss = criterion(model(batch), labels[i : i + 30])
        loss.backward()
        optimizer.step()
        total += loss.item() / 20
    print(f"epoch {epoch} loss {total:.3f}")
print("accuracy", (model(clean).argmax(1) == labels).float().mean().item())
