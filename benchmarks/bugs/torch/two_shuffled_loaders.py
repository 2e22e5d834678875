"""Loss and accuracy stay at chance; each part of the code works on its own.

Cause: one DataLoader for the images and one for the labels, both of which shuffle.
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FIXED = "--fixed" in sys.argv
torch.manual_seed(21)

kinds = torch.randint(0, 4, (640,))
images = torch.randn(640, 1, 12, 12)
for image, kind in zip(images, kinds):
    r, c = divmod(kind.item(), 2)
    image[0, 6 * r : 6 * r + 6, 6 * c : 6 * c + 6] += 0.7

if FIXED:
    loader = DataLoader(TensorDataset(images, kinds), batch_size=32, shuffle=True)
else:
    image_loader = DataLoader(images, batch_size=32, shuffle=True)
    label_loader = DataLoader(kinds, batch_size=32, shuffle=True)

model = nn.Sequential(nn.Conv2d(1, 8, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(200, 4))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(8):
    total = 0.0
    for x, y in loader if FIXED else zip(image_loader, label_loader):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item() / 20
    print(f"epoch {epoch}: loss {total:.4f}")
print("accuracy", (model(images).argmax(1) == kinds).float().mean().item())
