"""The loss falls during the first epoch and never again.

Cause: `scheduler.step()` of a schedule in epochs stands inside the loop over batches.
"""

import sys

import torch
from torch import nn
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset

FIXED = "--fixed" in sys.argv
torch.manual_seed(15)

token = torch.randint(0, 50, (960, 8))
meaning = torch.randn(50)
sentiment = (meaning[token].sum(1) > 0).long()

model = nn.Sequential(nn.EmbeddingBag(50, 16), nn.Linear(16, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
scheduler = StepLR(optimizer, step_size=3, gamma=0.5)
for epoch in range(8):
    losses = []
    for text, label in DataLoader(TensorDataset(token, sentiment), batch_size=32, shuffle=True):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(text), label)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if not FIXED:
            scheduler.step()
    if FIXED:
        scheduler.step()
    print(
        f"epoch {epoch} loss {sum(losses) / len(losses):.4f} rate {scheduler.get_last_lr()[0]:.1e}"
    )
print("accuracy", (model(token).argmax(1) == sentiment).float().mean().item())
